"""The broker's service: the one door through which every wire's requests reach the core.

``broker_service`` is the door; the other modules hold the decisions that belong to one request or one connection and
to no wire in particular. Nothing is imported here: a controller's gate needs two of these modules, and the page
``play`` runs some in a browser.
"""
