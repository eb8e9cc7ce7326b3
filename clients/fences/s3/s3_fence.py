# SPDX-License-Identifier: MIT
"""Objects of an S3-like store that refuse a smaller fence, with boto3: `s3` is boto3.client("s3").

The store must honour If-Match and If-None-Match of a PUT. The fence is the first line of the object. In the metadata it
would be useless: the ETag covers the content alone, so that a new holder's fence would not change it."""

import botocore.exceptions

RACE = (409, 412)  # somebody else wrote after we read


class LockLost(Exception):
    """A later holder has written."""


def enter(s3, bucket, key, fence):
    """Returns the content, after no earlier holder can write any more; b"" if there was none."""
    return _replace(s3, bucket, key, fence, lambda content: content)


def write(s3, bucket, key, fence, content):
    """Write b"" to delete: the object stays, since it has the fence."""
    _replace(s3, bucket, key, fence, lambda _: content)


def _replace(s3, bucket, key, fence, change):
    if not isinstance(fence, int) or not 0 < fence < 2**53:
        raise ValueError(f"not a fence: {fence!r}")
    while True:
        seen, content, condition = _get(s3, bucket, key)
        if fence < seen:
            raise LockLost(f"fence {fence} is smaller than {seen}")
        new = change(content)
        try:
            s3.put_object(Bucket=bucket, Key=key, Body=b"%d\n%b" % (fence, new), **condition)
            return new
        except botocore.exceptions.ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] not in RACE:
                raise


def _get(s3, bucket, key):
    try:
        found = s3.get_object(Bucket=bucket, Key=key)
    except s3.exceptions.NoSuchKey:
        return 0, b"", {"IfNoneMatch": "*"}
    seen, _, content = found["Body"].read().partition(b"\n")
    return int(seen), content, {"IfMatch": found["ETag"]}
