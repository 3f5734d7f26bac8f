//! What each of Kubernetes' own signers signs: upstream's rules, in upstream's words.

use croft_pki::SigningRequest;
use croft_pki::signing_request::Purpose;

use super::{API_CLIENT, KUBELET_CLIENT, KUBELET_SERVING};

const SIGNATURE: &str = "digital signature";
const ENCIPHERMENT: &str = "key encipherment";
const CLIENT: &str = "client auth";
const SERVER: &str = "server auth";

/// What the certificate is for, `None` if the signer is somebody else's, and the error if it does not sign such a request.
pub(super) fn check(signer: &str, request: &SigningRequest, usages: &[&str]) -> Result<Option<Purpose>, String> {
    match signer {
        API_CLIENT => api_client(usages).map(|()| Some(Purpose::Client)),
        KUBELET_CLIENT => kubelet_client(request, usages).map(|()| Some(Purpose::Client)),
        KUBELET_SERVING => kubelet_serving(request, usages).map(|()| Some(Purpose::Server)),
        _ => Ok(None),
    }
}

pub(super) fn may_encipher(usages: &[&str]) -> bool {
    usages.contains(&ENCIPHERMENT)
}

fn api_client(usages: &[&str]) -> Result<(), String> {
    if let Some(other) = usages.iter().find(|usage| ![SIGNATURE, ENCIPHERMENT, CLIENT].contains(usage)) {
        return Err(format!("invalid usage for client certificate: {other}"));
    }
    if !usages.contains(&CLIENT) {
        return Err(format!("missing required usage for client certificate: {CLIENT}"));
    }
    Ok(())
}

fn kubelet_client(request: &SigningRequest, usages: &[&str]) -> Result<(), String> {
    of_nodes(request)?;
    if !request.dns_names.is_empty() {
        return Err("DNS subjectAltNames are not allowed".to_owned());
    }
    no_other_names(request)?;
    if !request.ips.is_empty() {
        return Err("IP subjectAltNames are not allowed".to_owned());
    }
    of_a_node(request)?;
    exactly(usages, CLIENT)
}

fn kubelet_serving(request: &SigningRequest, usages: &[&str]) -> Result<(), String> {
    of_nodes(request)?;
    if request.dns_names.is_empty() && request.ips.is_empty() {
        return Err("DNS or IP subjectAltName is required".to_owned());
    }
    no_other_names(request)?;
    exactly(usages, SERVER)?;
    of_a_node(request)
}

fn of_nodes(request: &SigningRequest) -> Result<(), String> {
    if request.groups == ["system:nodes"] { Ok(()) } else { Err("subject organization is not system:nodes".to_owned()) }
}

fn of_a_node(request: &SigningRequest) -> Result<(), String> {
    if request.user.starts_with("system:node:") {
        return Ok(());
    }
    Err("subject common name does not begin with system:node:".to_owned())
}

fn no_other_names(request: &SigningRequest) -> Result<(), String> {
    if !request.emails.is_empty() {
        return Err("Email subjectAltNames are not allowed".to_owned());
    }
    if !request.uris.is_empty() {
        return Err("URI subjectAltNames are not allowed".to_owned());
    }
    Ok(())
}

/// Signatures and this purpose, and enciphering only for keys that can.
fn exactly(usages: &[&str], purpose: &str) -> Result<(), String> {
    let is_known = |usage: &&str| [SIGNATURE, ENCIPHERMENT, purpose].contains(usage);
    if usages.iter().all(is_known) && usages.contains(&SIGNATURE) && usages.contains(&purpose) {
        return Ok(());
    }
    let mut wanted = [SIGNATURE, ENCIPHERMENT, purpose];
    wanted.sort_unstable();
    Err(format!("usages did not match [{}]", wanted.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(user: &str, group: &str, change: impl FnOnce(&mut SigningRequest)) -> SigningRequest {
        let (pem, _) = croft_pki::signing_request::make(user, &[group.to_owned()]).unwrap();
        let mut request = SigningRequest::parse(pem.as_bytes()).unwrap();
        change(&mut request);
        request
    }

    /// Signer, request, usages, and what comes of it.
    type Case<'a> = (&'a str, SigningRequest, &'a [&'a str], Result<Option<Purpose>, &'a str>);

    #[test]
    fn signers_sign_what_upstream_s_sign() {
        let node = |change: fn(&mut SigningRequest)| request("system:node:a", "system:nodes", change);
        let (jane, plain) = (|| request("jane", "ops", |_| {}), || node(|_| {}));
        let named = || node(|request| request.dns_names.push("a".to_owned()));
        let nameless = || request("a", "system:nodes", |request| request.dns_names.push("a".to_owned()));
        let (client, server) = ([SIGNATURE, CLIENT], [SIGNATURE, ENCIPHERMENT, SERVER]);
        let (is_client, is_server) = (Ok(Some(Purpose::Client)), Ok(Some(Purpose::Server)));
        let no_node = Err("subject common name does not begin with system:node:");
        let not_client = Err("usages did not match [client auth digital signature key encipherment]");
        let not_server = Err("usages did not match [digital signature key encipherment server auth]");
        let table: [Case<'_>; 17] = [
            (API_CLIENT, jane(), &[CLIENT], is_client),
            (API_CLIENT, jane(), &[SIGNATURE, ENCIPHERMENT, CLIENT], is_client),
            (API_CLIENT, plain(), &server, Err("invalid usage for client certificate: server auth")),
            (API_CLIENT, plain(), &[SIGNATURE], Err("missing required usage for client certificate: client auth")),
            (KUBELET_CLIENT, plain(), &client, is_client),
            (KUBELET_CLIENT, named(), &client, Err("DNS subjectAltNames are not allowed")),
            (
                KUBELET_CLIENT,
                node(|request| request.ips.push([1, 2, 3, 4].into())),
                &client,
                Err("IP subjectAltNames are not allowed"),
            ),
            (
                KUBELET_CLIENT,
                node(|request| request.uris.push("x:".to_owned())),
                &client,
                Err("URI subjectAltNames are not allowed"),
            ),
            (KUBELET_CLIENT, jane(), &client, Err("subject organization is not system:nodes")),
            (KUBELET_CLIENT, request("a", "system:nodes", |_| {}), &client, no_node),
            (KUBELET_CLIENT, plain(), &[CLIENT], not_client),
            (KUBELET_CLIENT, plain(), &server, not_client),
            (KUBELET_SERVING, named(), &server, is_server),
            (KUBELET_SERVING, plain(), &server, Err("DNS or IP subjectAltName is required")),
            (KUBELET_SERVING, named(), &client, not_server),
            (KUBELET_SERVING, nameless(), &server, no_node),
            ("example.com/mine", plain(), &client, Ok(None)),
        ];
        for (signer, request, usages, expected) in table {
            assert_eq!(check(signer, &request, usages), expected.map_err(str::to_owned), "{signer} {request:?}");
        }
    }
}
