use super::*;
use croft_meta::FieldPath;

#[test]
fn every_schema_is_structural() {
    for definition in shipped_definitions() {
        for version in definition["spec"]["versions"].as_array().unwrap() {
            let errors =
                croft_schema::check_structural(&version["schema"]["openAPIV3Schema"], &FieldPath::new("schema"));
            assert!(errors.is_empty(), "{}: {errors:#?}", definition["metadata"]["name"]);
        }
    }
}
