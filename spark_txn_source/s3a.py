"""Spark's own Parquet reader on an object store with the S3 protocol: Hadoop's file system `s3a`, its settings, what is missing.

`scan` hands Spark the endpoint and the region of the ledger root. The jar of `s3a` and the credentials are the user's to give: the
jar must be there when the JVM starts, and credentials in a setting would be shown in Spark's UI.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from ledgers.storage import LedgerStorage
from metadata.common.errors import ConfigurationError

_ABSENT = ("S3AFileSystem not found", "UNSUPPORTED_FILESYSTEM", "No FileSystem for scheme", "software/amazon", "software.amazon")
_DENIED = ("NoAuthWithAWSException", "NoAwsCredentialsException", "AccessDeniedException", "CredentialInitializationException")


def settings(spark: SparkSession, storage: LedgerStorage) -> dict[str, str]:
    """Return the options by which Spark's reader reaches the files of a ledger root; none unless they are on S3. A setting of the
    session for this bucket takes precedence.
    """
    found = storage.spark_settings()
    return {name: value for name, value in found.items() if spark.conf.get(f"spark.hadoop.{name}", None) is None}


@contextmanager
def pointed(spark: SparkSession, storage: LedgerStorage) -> Iterator[None]:
    """Raise ConfigurationError in place of an error of the block that tells of a missing jar or of missing credentials."""
    try:
        yield
    except Exception as error:
        text = f"{type(error).__name__} {error}"
        if not storage.spark_uri("x").startswith("s3a://"):
            raise
        if any(word in text for word in _DENIED):
            raise ConfigurationError(
                f"scan() cannot read {storage.uri}: Spark's JVM has no credentials for it, or they do not allow it.",
                advice="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment in which the JVM of the driver and the "
                "executors start, or set spark.hadoop.fs.s3a.aws.credentials.provider. "
                'spark.read.format("txnsegment") uses the credentials of Python.',
            ) from error
        if any(word in text for word in _ABSENT):
            jar = f"org.apache.hadoop:hadoop-aws:{hadoop_version(spark)}"
            given = " ".join(f"spark.hadoop.{name}={value}" for name, value in storage.spark_settings().items())
            raise ConfigurationError(
                f"scan() cannot read {storage.uri}: Spark's Parquet reader reads S3 through s3a, and this Spark has no {jar}.",
                advice=f"Start Spark with --packages {jar} (spark.jars.packages), which also brings software.amazon.awssdk:bundle. "
                f"scan() sets the rest itself: {given or 'nothing is needed'}. "
                'spark.read.format("txnsegment") reads the topic without this jar.',
            ) from error
        raise


def hadoop_version(spark: SparkSession) -> str:
    """Return the version of Hadoop in Spark's jars. The same call works on a Spark Connect server."""
    (version,) = spark.sql("SELECT java_method('org.apache.hadoop.util.VersionInfo', 'getVersion')").first()
    return str(version)
