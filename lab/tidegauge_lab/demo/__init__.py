"""The main job, ``tidegauge demo``: real data through a cluster that loses a broker, and the books balanced.

``flights`` gives the data, ``stream`` produces it at a pace, ``query`` runs the Spark job, ``history`` reads the event
logs, ``books`` compares what went in with what came out, ``screen`` shows progress, ``story`` tells it all in order.
"""
