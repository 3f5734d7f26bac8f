use super::*;

const RSA: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQCp3dhI4aQoNnEEZUCDYj+/mvIIYqFqOFWRBb7BTNcMFluiefPJj9GxL2IEd7UtbKOY8AdLTewYFM4MPmUKO/4PLF6hBvxqGXyKJ9Md+NrHilA0pI9ZW4a1JQbAsXrICRcsQXRZ510vfu2RGDEkKo5i1OrIgPcrM2FPNBuC1xjGGNbEdsy3POZCPf7LTzOJ1/L6IZkS0e443NskstqZdm/9T1SU/wu7+VofrhIJgeEzRgRxrP7OKNxQ76aHHrAAELcziTj5glRlWevTlZQ6efB8vnqfKixAATcT1hVax84l7CgIbSA+HrEy0KjjXZJenyNKa42eKWOrWO9OsqnercEl";
const ED25519: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHVcYlyuMnrtHVQnZ+JQab4xvu6q9kNcam9W/ZJ2MWJu";
const P256: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBFCA7ftVKPg702a6Dr62Jsv5MkjImc+idqOa4cdZ/nrbdMszjgjZwtAdbMC2vUj4APXKiDQSKMIYuGM7gIgzP1E=";
const P384: &str = "ecdsa-sha2-nistp384 AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlzdHAzODQAAABhBFRYA/LFIGPCfwUukBrDrZ7BWEGG6u5isHIpr6Dhc1sOixnbcksgCb/1dUrh+lwpYzTNJkCS6hY3BO5vyAaoWA+qnuTdHj0C19FEQXIR7/PAJeFsRSULMwWkJ3s3URyJWQ==";
const P521: &str = "ecdsa-sha2-nistp521 AAAAE2VjZHNhLXNoYTItbmlzdHA1MjEAAAAIbmlzdHA1MjEAAACFBAHUG/sCW38yLlaySOet4ZdFELIPPJ0UVFqijn/X7T3WsrDJWEh1tbEgKg02BIcGVjKAgrWairFoZh/QiD81NcWLeAF9FCU1ZGGr/VAC+06SHa7V2UeRlG1+en9xluCJwDqMVfKxKL1Ywp2WXrM6Lmnj0+7wlPUQX8+hXx7Ksfc7/B73Wg==";

/// Fingerprints as `ssh-keygen -l -E md5` shows them.
#[test]
fn fingerprints_are_those_of_openssh() {
    let cases = [
        (RSA, "ad:69:a6:61:d8:67:3c:d6:12:6d:f5:0f:63:02:4a:98"),
        (ED25519, "bc:85:56:b8:99:67:c3:16:5d:e3:66:62:6c:b9:ff:09"),
        (P256, "97:ef:c6:bb:c6:31:61:04:eb:0c:bd:31:3e:08:9e:d9"),
        (P384, "87:60:e0:34:73:8d:28:73:16:18:44:93:4b:7d:6c:8f"),
        (P521, "bb:37:43:2b:ea:a6:42:0f:e5:b7:a4:d3:cc:e7:d4:56"),
    ];
    for (line, expected) in cases {
        let key = PublicKey::parse(line).unwrap();
        assert_eq!(key.fingerprint(), expected);
        assert_eq!(key.algorithm, line.split(' ').next().unwrap());
    }
}

#[test]
fn comments_options_and_blank_lines_are_no_part_of_a_key() {
    let plain = PublicKey::parse(ED25519).unwrap();
    for line in [
        format!("{ED25519} me@there"),
        format!("\n# mine\n{ED25519}\n"),
        format!("command=\"echo \\\"ssh-rsa\\\" x\",no-pty {ED25519}"),
        ED25519.replace(' ', "   "),
    ] {
        let key = PublicKey::parse(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(key.fingerprint(), plain.fingerprint(), "{line}");
    }
    assert_eq!(PublicKey::parse(&format!("{ED25519} me and  you")).unwrap().comment, "me and  you");
}

#[test]
fn what_is_no_key_is_refused() {
    let cut = &ED25519[..ED25519.len() - 4];
    let renamed = ED25519.replace("ssh-ed25519 ", "ssh-rsa ");
    let cases = [
        ("", KeyError::Empty),
        ("# nothing", KeyError::Empty),
        ("hello", KeyError::NoAlgorithm),
        ("ssh-ed25519", KeyError::Malformed),
        ("ssh-ed25519 !!!", KeyError::NotBase64),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", KeyError::Private),
        (cut, KeyError::Malformed),
        (&renamed, KeyError::Malformed),
        (&"x".repeat(LONGEST_LINE + 1), KeyError::TooLong),
    ];
    for (text, expected) in cases {
        assert_eq!(PublicKey::parse(text), Err(expected), "{text}");
    }
}
