use serde_json::{Value, json};

use super::super::testing::{Objects, admitted, nothing, refusal, write};
use super::*;

fn volume(spec: &Value) -> Value {
    json!({"metadata": {"name": "d", "namespace": "a"}, "spec": spec})
}

fn pvc() -> Value {
    json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": 1_073_741_824}}})
}

#[test]
fn one_place_and_one_source() {
    let right = admitted(admit, volume(&json!({"source": {"blank": {}}, "pvc": pvc()})));
    assert_eq!(right["spec"]["pvc"]["resources"]["requests"]["storage"], "1073741824");
    admitted(admit, volume(&json!({"sourceRef": {"kind": "DataSource", "name": "s"}, "storage": {}})));
    let cases = [
        (json!({"source": {"blank": {}}}), "Missing Data volume PVC or Storage"),
        (
            json!({"source": {"blank": {}}, "pvc": pvc(), "storage": {}}),
            "Duplicate storage definition, both target storage and target pvc defined",
        ),
        (json!({"pvc": pvc()}), "Data volume should have either Source, SourceRef, or be externally populated"),
        (json!({"source": {}, "pvc": pvc()}), "Missing dataVolume valid source"),
        (json!({"source": {"blank": {}, "upload": {}}, "pvc": pvc()}), "Multiple dataVolume sources"),
        (
            json!({"source": {"http": {"url": "file:///etc/passwd"}}, "pvc": pvc()}),
            "Invalid URI file:///etc/passwd: only http and https are supported",
        ),
        (json!({"source": {"registry": {"url": "http://r/i"}}, "pvc": pvc()}), "registry URL must be docker://"),
        (
            json!({"source": {"s3": {"url": "s3://b"}}, "pvc": pvc()}),
            "source s3 is not supported: use http or registry",
        ),
        (json!({"source": {"blank": {}}, "pvc": {}}), "PVC size is missing"),
        (
            json!({"source": {"blank": {}}, "pvc": pvc(), "contentType": "tar"}),
            "ContentType not one of: kubevirt, archive: tar",
        ),
    ];
    for (spec, message) in cases {
        let error = refusal(admit, volume(&spec));
        assert!(error.message().ends_with(message), "{spec}: {error}");
    }
}

#[test]
fn a_claim_of_the_same_name_is_not_taken_over() {
    let claim = json!({"metadata": {"name": "d", "namespace": "a"}});
    let objects = Objects::default().with("", "persistentvolumeclaims", claim);
    let asked = volume(&json!({"source": {"blank": {}}, "pvc": pvc()}));
    let error = write(admit, asked.clone(), None, &objects, false).unwrap_err();
    assert!(error.message().ends_with("Destination PVC a/d already exists"), "{error}");
    let mut adopting = asked;
    adopting["metadata"]["annotations"] = json!({"cdi.kubevirt.io/allowClaimAdoption": "true"});
    assert!(write(admit, adopting, None, &objects, false).is_ok());
}

#[test]
fn a_spec_does_not_change() {
    let old = admitted(admit, volume(&json!({"source": {"blank": {}}, "pvc": pvc()})));
    let mut new = old.clone();
    new["spec"]["source"] = json!({"upload": {}});
    let error = write(admit, new, Some(&old), &nothing(), false).unwrap_err();
    assert!(error.message().ends_with("Cannot update DataVolume Spec"), "{error}");
}

#[test]
fn a_volume_under_a_machine_stays() {
    let machine = |going: bool| {
        let mut machine = json!({"metadata": {"name": "m", "namespace": "a"},
            "spec": {"template": {"spec": {"volumes": [{"name": "v", "dataVolume": {"name": "d"}}]}}}});
        if going {
            machine["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Objects::default().with("kubevirt.io", "virtualmachines", machine)
    };
    let error = admit_delete(&volume(&json!({})), &machine(false)).unwrap_err();
    assert_eq!(error.code(), 409);
    assert!(admit_delete(&volume(&json!({})), &machine(true)).is_ok());
}

#[test]
fn templates_are_used_and_local() {
    let spec = |templates: Value, volumes: Value| -> VirtualMachineSpec {
        serde_json::from_value(json!({
            "dataVolumeTemplates": templates,
            "template": {"spec": {"domain": {"devices": {}}, "volumes": volumes}},
        }))
        .unwrap()
    };
    let check = |spec: &VirtualMachineSpec| {
        let mut denial = Denial::by("test");
        check_templates(&mut denial, spec, None, "a");
        denial.finish().err().map(|error| error.message().to_owned()).unwrap_or_default()
    };
    let template = json!([{"metadata": {"name": "d"}, "spec": {"source": {"blank": {}}, "storage": {}}}]);
    let used = json!([{"name": "v", "dataVolume": {"name": "d"}}]);
    assert_eq!(check(&spec(template.clone(), used.clone())), "");
    assert!(check(&spec(template.clone(), json!([]))).contains(
        "DataVolumeTemplate entry spec.dataVolumeTemplate[0] must be referenced in the VMI template's 'volumes' list"
    ));
    let mut elsewhere = template;
    elsewhere[0]["metadata"]["namespace"] = json!("b");
    assert!(check(&spec(elsewhere, used)).contains("Embedded DataVolume namespace b differs from VM namespace a"));
}
