"""An S3 server in a process of its own, which checks who asks. Ends when its input does.

Prints one line of JSON: its port and the keys of a user who may use S3. There is one bucket, named croft.
"""

import json
import sys
import urllib.request

import boto3
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
_, port = server.get_host_and_port()
url = f"http://127.0.0.1:{port}"
anybody = dict(endpoint_url=url, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")

boto3.client("s3", **anybody).create_bucket(Bucket="croft")
iam = boto3.client("iam", **anybody)
iam.create_user(UserName="croft")
allowed = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
iam.put_user_policy(UserName="croft", PolicyName="s3", PolicyDocument=json.dumps(allowed))
key = iam.create_access_key(UserName="croft")["AccessKey"]
# From here on nobody gets in without a right signature.
plain = {"Content-Type": "text/plain"}
urllib.request.urlopen(urllib.request.Request(f"{url}/moto-api/reset-auth", b"0", plain)).read()
print(json.dumps({"port": port, "id": key["AccessKeyId"], "secret": key["SecretAccessKey"]}), flush=True)
sys.stdin.read()
server.stop()
