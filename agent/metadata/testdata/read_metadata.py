"""Reads an address as cloud-init does on an ordinary image, with cloud-init's own code, and prints what it has read."""

import json
import sys

from cloudinit import helpers, util
from cloudinit.sources import DataSourceEc2
from cloudinit.sources.helpers import ec2

base = sys.argv[1]
source = DataSourceEc2.DataSourceEc2({"datasource": {"Ec2": {"metadata_urls": [base], "max_wait": 20, "timeout": 10}}}, None, helpers.Paths({}))
crawled = source.crawl_metadata()
source.metadata = meta = crawled["meta-data"]
seed = util.read_seeded(base + "/nocloud/")
print(json.dumps({
    "version": crawled["_metadata_api_version"], "user-data": str(crawled["user-data"] or b"", "utf-8"), "instance-id": source.get_instance_id(),
    "hostname": meta["local-hostname"], "keys": source.get_public_ssh_keys(), "zone": source.availability_zone, "region": meta["placement"]["region"],
    "tags": meta["tags"]["instance"], "group": meta["placement"]["group-name"], "account": ec2.get_instance_identity("2021-03-23", base)["document"]["accountId"],
    "nocloud": seed[0], "nocloud-user-data": str(seed[1], "utf-8"),
}))
