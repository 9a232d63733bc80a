"""The files that ``tidegauge format`` writes into a node's log directories, as bytes. Pure.

Each directory gets ``bootstrap.checkpoint`` with the cluster's first metadata records, and ``meta.properties``. The
metadata directory of a node with initial voters gets the snapshot (0, 0), which holds them.
Source: ``org.apache.kafka.metadata.storage.Formatter``; KIP-631, KIP-853.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.features import (
    FEATURES,
    KRAFT_VERSION,
    LATEST,
    LEVELS,
    METADATA_VERSION,
    SCRAM_SINCE,
    check_known,
    check_levels,
    check_metadata_level,
    level_of_release,
)
from tidegauge.kafka.kraft.record_types import encode_record
from tidegauge.kafka.metadata_records.feature_level_record import FeatureLevelRecord
from tidegauge.kafka.metadata_records.user_scram_credential_record import UserScramCredentialRecord
from tidegauge.lazy_dataclasses import dataclass
from tidegauge_broker.metadata_log.meta_properties import META_PROPERTIES, NodeProperties, encode_meta_properties
from tidegauge_broker.metadata_log.raft_records import voters_message
from tidegauge_broker.metadata_log.snapshot_names import BOOTSTRAP_NAME, snapshot_name
from tidegauge_broker.metadata_log.snapshots import SnapshotWriter, encode_bootstrap
from tidegauge_controller.raft.values import VoterSet

METADATA_PARTITION = "__cluster_metadata-0"
_ALWAYS = "Because controller.quorum.voters is not set on this controller, you must specify one of the following:"
_BOTH = (
    "You cannot specify controller.quorum.voters and format the node with --initial-controllers or --standalone. If "
    "you want to use dynamic quorum, please remove controller.quorum.voters and specify "
    "controller.quorum.bootstrap.servers instead."
)
_NOT_ZERO = (
    "Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of the flags --standalone, "
    "--initial-controllers, or --no-initial-controllers is used. For dynamic controllers support, try removing the "
    "--feature flag for kraft.version."
)
_NOT_DYNAMIC = (
    "Cannot set kraft.version to {} unless controller.quorum.voters is empty and one of the flags --standalone, "
    "--initial-controllers, or --no-initial-controllers is used. For dynamic controllers support, try using one of "
    "--standalone, --initial-controllers, or --no-initial-controllers and removing controller.quorum.voters."
)


@dataclass(frozen=True, slots=True)
class Formatting:
    """The arguments of a format.

    Attributes:
        cluster_id: the cluster's id.
        node_id: the node's id.
        metadata_directory: the directory of the metadata log.
        is_controller: whether the node has the role of a controller.
        has_static_voters: whether ``controller.quorum.voters`` is set.
        initial_voters: the voters of ``--standalone`` or ``--initial-controllers``; None: neither was given.
        no_initial_voters: whether ``--no-initial-controllers`` was given.
        release: the value of ``--release-version``; None: the latest.
        features: levels of ``--feature``, by name.
        credentials: given by ``--add-scram``.
    """

    cluster_id: str
    node_id: int
    metadata_directory: str
    is_controller: bool = True
    has_static_voters: bool = False
    initial_voters: VoterSet | None = None
    no_initial_voters: bool = False
    release: str | None = None
    features: Mapping[str, int] = field(default_factory=dict[str, int])
    credentials: Sequence[UserScramCredentialRecord] = ()

    def check_voters(self) -> None:
        """Refuse voters that the settings and the options do not agree on (StorageTool.runFormatCommand).

        Raises:
            TidegaugeError: INVALID_CONFIG.
        """
        if self.has_static_voters and self.initial_voters is not None:
            raise _refusal(_BOTH)
        is_named = self.has_static_voters or self.initial_voters is not None or self.no_initial_voters
        if self.is_controller and not is_named:
            raise _refusal(f"{_ALWAYS} --standalone, --initial-controllers, or --no-initial-controllers.")

    def levels(self) -> dict[str, int]:
        """Return the level of each feature, metadata.version first.

        Raises:
            TidegaugeError: INVALID_CONFIG, a feature or level does not exist, or two contradict each other.
        """
        metadata_version = self._metadata_version()
        for name in self.features:
            check_known(name)
        found = {METADATA_VERSION: metadata_version}
        for name, feature in FEATURES.items():
            if name == KRAFT_VERSION:
                found[name] = self._kraft_version()
            else:
                found[name] = self.features.get(name, feature.default_at(metadata_version))
        check_levels(found)
        if self.credentials and metadata_version < SCRAM_SINCE:
            raise _refusal(f"SCRAM is only supported in {METADATA_VERSION} {LEVELS[SCRAM_SINCE]} or later.")
        return found

    def _metadata_version(self) -> int:
        asked = self.features.get(METADATA_VERSION)
        if asked is not None and self.release is not None:
            raise _refusal("Use --release-version instead of --feature metadata.version=X to avoid ambiguity.")
        if asked is not None:
            check_metadata_level(asked)
            return asked
        return LATEST if self.release is None else level_of_release(self.release)

    def _kraft_version(self) -> int:
        """Return the level of kraft.version (Formatter.effectiveKRaftFeatureLevel)."""
        asked = self.features.get(KRAFT_VERSION)
        is_dynamic = not self.has_static_voters and (self.initial_voters is not None or self.no_initial_voters)
        if asked is None:
            return 1 if is_dynamic else 0
        if asked == 0 and is_dynamic:
            raise _refusal(_NOT_ZERO)
        if asked != 0 and not is_dynamic:
            raise _refusal(_NOT_DYNAMIC.format(asked))
        return asked

    def kind_of(self, directory: str) -> str:
        """Return what a directory is in Kafka's words (Formatter.DirectoryType)."""
        if directory != self.metadata_directory:
            return "data directory"
        if self.initial_voters is None:
            return "metadata directory"
        is_voter = self.node_id in self.initial_voters.voters
        return "dynamic metadata voter directory" if is_voter else "dynamic metadata directory"

    def directory_id_of(self, directory: str) -> bytes | None:
        """Return a directory's id by the initial voters; None: any."""
        if directory != self.metadata_directory or self.initial_voters is None:
            return None
        voter = self.initial_voters.voters.get(self.node_id)
        return None if voter is None else voter.key.directory_id

    def files_of(self, directory: str, directory_id: bytes, levels: Mapping[str, int], now_ms: int) -> dict[str, bytes]:
        """Return the files of a directory by their names in it; ``meta.properties`` last.

        Args:
            directory: one of the node's directories.
            directory_id: its id.
            levels: as ``levels`` returned them.
            now_ms: the wall-clock time that the files name.
        """
        values = [encode_record(record, 0) for record in bootstrap_records(levels, self.credentials)]
        files = {BOOTSTRAP_NAME: encode_bootstrap(values, now_ms, now_ms, now_ms)}
        if directory == self.metadata_directory and self.initial_voters is not None:
            writer = SnapshotWriter(epoch=0)
            voters = voters_message(self.initial_voters)
            first = writer.begin(now_ms, levels[KRAFT_VERSION], voters, now_ms)
            files[f"{METADATA_PARTITION}/{snapshot_name(0, 0)}"] = first + writer.finish(now_ms)
        properties = NodeProperties(self.node_id, self.cluster_id, directory_id)
        files[META_PROPERTIES] = encode_meta_properties(properties, now_ms)
        return files


def bootstrap_records(
    levels: Mapping[str, int], credentials: Sequence[UserScramCredentialRecord]
) -> list[FeatureLevelRecord | UserScramCredentialRecord]:
    """Return the cluster's first metadata records: levels above 0 but kraft.version's, then credentials.

    The level of kraft.version is a control record of the log (BootstrapMetadata.fromVersions).
    """
    named = [name for name in levels if name != KRAFT_VERSION and (levels[name] > 0 or name == METADATA_VERSION)]
    return [*(FeatureLevelRecord(name=name, feature_level=levels[name]) for name in named), *credentials]


def bootstrap_sentence(levels: Mapping[str, int], credentials: Sequence[UserScramCredentialRecord]) -> str:
    """Return kafka-storage's line about the first records, without secrets.

    Salts and keys of credentials are left out.
    """
    shown: list[str] = []
    for record in bootstrap_records(levels, credentials):
        if isinstance(record, FeatureLevelRecord):
            text = f"FeatureLevelRecord(name='{record.name}', featureLevel={record.feature_level})"
        else:
            keys = "salt=[hidden], storedKey=[hidden], serverKey=[hidden]"
            named = f"name='{record.name}', mechanism={record.mechanism}"
            text = f"UserScramCredentialRecord({named}, {keys}, iterations={record.iterations})"
        shown.append(f"ApiMessageAndVersion({text} at version 0)")
    level = f"metadataVersionLevel={levels[METADATA_VERSION]}"
    return f"Bootstrap metadata: BootstrapMetadata(records=[{', '.join(shown)}], {level}, source=format command)"


def check_owner(properties: NodeProperties, path: str, cluster_id: str, node_id: int) -> None:
    """Refuse a directory that another cluster or node owns (MetaPropertiesEnsemble.verify).

    Args:
        properties: the content of its meta.properties.
        path: of that file.
        cluster_id: the id that is expected.
        node_id: the id that is expected.

    Raises:
        TidegaugeError: INCONSISTENT_CLUSTER_ID or INVALID_CONFIG.
    """
    if properties.cluster_id not in {None, cluster_id}:
        text = f"Invalid cluster.id in: {path}. Expected {cluster_id}, but read {properties.cluster_id}"
        text += "; name a directory of this cluster in log.dirs, or move the other one's data away and format it"
        raise TidegaugeError(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    if properties.node_id not in {None, node_id}:
        raise _refusal(
            f"Stored node id {properties.node_id} doesn't match previous node id {node_id} in {path}. If you moved "
            "your data, make sure your configured node id matches. If you intend to create a new node, you should "
            "remove all data in your data directories."
        )


def _refusal(sentence: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_CONFIG, sentence)
