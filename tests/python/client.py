"""The official Python client against a server: typed, watch, dynamic, patches and server-side apply.

Run as `client.py KUBECONFIG`; it prints one line per check and fails at the first that does not hold.
"""

import base64
import sys
import threading
import time

from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException

NAMESPACE = "python"


def check(what, holds):
    if not holds:
        raise AssertionError(what)
    print("ok", what)


def eventually(what, attempt, patience=30):
    deadline = time.monotonic() + patience
    while True:
        try:
            if attempt():
                print("ok", what)
                return
        except ApiException as error:
            last = error
        else:
            last = "not yet"
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: {last}")
        time.sleep(0.05)


def refused(what, status, call):
    try:
        call()
    except ApiException as error:
        check(f"{what}: {status}", error.status == status)
        return
    raise AssertionError(f"{what} should be refused")


def typed(core, apps):
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
    secret = client.V1Secret(metadata=client.V1ObjectMeta(name="s", labels={"a": "b"}), string_data={"k": "v"})
    made = core.create_namespaced_secret(NAMESPACE, secret)
    check("stringData becomes data", base64.b64decode(made.data["k"]) == b"v")
    refused("second create", 409, lambda: core.create_namespaced_secret(NAMESPACE, secret))
    refused("missing object", 404, lambda: core.read_namespaced_secret("none", NAMESPACE))
    made.data["k"] = base64.b64encode(b"w").decode()
    replaced = core.replace_namespaced_secret("s", NAMESPACE, made)
    check("replace changes the version", replaced.metadata.resource_version != made.metadata.resource_version)
    refused("stale replace", 409, lambda: core.replace_namespaced_secret("s", NAMESPACE, made))
    listed = core.list_namespaced_secret(NAMESPACE, label_selector="a in (b)")
    check("list by label", [s.metadata.name for s in listed.items] == ["s"])

    labels = {"app": "web"}
    container = client.V1Container(name="c", image="i", ports=[client.V1ContainerPort(container_port=80)])
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels=labels), spec=client.V1PodSpec(containers=[container])
    )
    spec = client.V1DeploymentSpec(selector=client.V1LabelSelector(match_labels=labels), template=template)
    deployment = client.V1Deployment(metadata=client.V1ObjectMeta(name="d"), spec=spec)
    made = apps.create_namespaced_deployment(NAMESPACE, deployment)
    check("a deployment is defaulted", made.spec.replicas == 1)
    scaled = apps.patch_namespaced_deployment_scale("d", NAMESPACE, {"spec": {"replicas": 3}})
    check("scale", scaled.spec.replicas == 3)
    patched = apps.patch_namespaced_deployment("d", NAMESPACE, {"spec": {"template": {"spec": {"containers": [
        {"name": "c", "image": "j"}]}}}})
    merged = patched.spec.template.spec.containers[0]
    check("a dictionary is a strategic patch", merged.image == "j" and merged.ports[0].container_port == 80)
    patched = apps.patch_namespaced_deployment("d", NAMESPACE, [{"op": "replace", "path": "/spec/replicas", "value": 5}])
    check("a list is a JSON patch", patched.spec.replicas == 5)
    page = core.list_config_map_for_all_namespaces(limit=1)
    check("pages", len(page.items) == 1 and bool(page.metadata._continue))


def watching(core):
    version = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    seen = []

    def follow():
        stream = watch.Watch().stream(
            core.list_namespaced_config_map, NAMESPACE, resource_version=version, label_selector="w=1", timeout_seconds=30
        )
        for event in stream:
            seen.append((event["type"], event["object"].metadata.name))
            if event["type"] == "DELETED":
                return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    meta = client.V1ObjectMeta(name="w", labels={"w": "1"})
    core.create_namespaced_config_map(NAMESPACE, client.V1ConfigMap(metadata=meta, data={"a": "b"}))
    core.patch_namespaced_config_map("w", NAMESPACE, {"data": {"a": "c"}})
    core.delete_namespaced_config_map("w", NAMESPACE)
    thread.join(30)
    check("watch", seen == [("ADDED", "w"), ("MODIFIED", "w"), ("DELETED", "w")])


def dynamic_client(api):
    dyn = dynamic.DynamicClient(api)
    crds = dyn.resources.get(api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition")
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer", "default": 3, "maximum": 9}}}}}
    crds.create(body={
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "snakes.python.example.com"},
        "spec": {"group": "python.example.com", "scope": "Namespaced",
                 "names": {"plural": "snakes", "singular": "snake", "kind": "Snake"},
                 "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]},
    })
    found = {}

    def served():
        try:
            dyn.resources.invalidate_cache()
            found["snakes"] = dyn.resources.get(api_version="python.example.com/v1", kind="Snake")
            return True
        except dynamic.exceptions.ResourceNotFoundError:
            return False

    eventually("a new kind is discovered", served)
    snakes = found["snakes"]
    eventually("and served", lambda: snakes.get(namespace=NAMESPACE) is not None)
    body = {"apiVersion": "python.example.com/v1", "kind": "Snake", "metadata": {"name": "kaa"}, "spec": {}}
    made = snakes.create(body=body, namespace=NAMESPACE)
    check("defaulted by its schema", made.spec.size == 3)
    patched = snakes.patch(
        name="kaa", namespace=NAMESPACE, body={"spec": {"size": 4}}, content_type="application/merge-patch+json"
    )
    check("merge patch", patched.spec.size == 4)
    refused("validated by its schema", 422, lambda: snakes.patch(
        name="kaa", namespace=NAMESPACE, body={"spec": {"size": 10}}, content_type="application/merge-patch+json"))
    applied = snakes.server_side_apply(
        name="nagini", namespace=NAMESPACE, field_manager="one",
        body={"apiVersion": "python.example.com/v1", "kind": "Snake", "metadata": {"name": "nagini"}, "spec": {"size": 1}},
    )
    check("server-side apply", applied.spec.size == 1)
    refused("a conflict", 409, lambda: snakes.server_side_apply(
        name="nagini", namespace=NAMESPACE, field_manager="two",
        body={"apiVersion": "python.example.com/v1", "kind": "Snake", "metadata": {"name": "nagini"}, "spec": {"size": 2}}))
    forced = snakes.server_side_apply(
        name="nagini", namespace=NAMESPACE, field_manager="two", force_conflicts=True,
        body={"apiVersion": "python.example.com/v1", "kind": "Snake", "metadata": {"name": "nagini"}, "spec": {"size": 2}},
    )
    check("forced", forced.spec.size == 2)
    custom = client.CustomObjectsApi(api)
    listed = custom.list_namespaced_custom_object("python.example.com", "v1", NAMESPACE, "snakes")
    check("custom objects", sorted(i["metadata"]["name"] for i in listed["items"]) == ["kaa", "nagini"])
    snakes.delete(name="kaa", namespace=NAMESPACE)
    crds.delete(name="snakes.python.example.com")


def main():
    config.load_kube_config(sys.argv[1])
    api = client.ApiClient()
    core, apps = client.CoreV1Api(api), client.AppsV1Api(api)
    check("version", client.VersionApi(api).get_code().major == "1")
    typed(core, apps)
    watching(core)
    dynamic_client(api)
    core.delete_namespaced_secret("s", NAMESPACE, body=client.V1DeleteOptions(propagation_policy="Background"))
    refused("deleted", 404, lambda: core.read_namespaced_secret("s", NAMESPACE))


main()
