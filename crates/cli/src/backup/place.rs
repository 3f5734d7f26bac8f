//! Where something is in a backup: `backup:disk.partition:/path`, of which all but the backup may be left out.

use std::str::FromStr;

pub(super) const HELP: &str = "BACKUP is a backup and, after colons, a disk of it and a path on that disk: web-1, web-1:disk-0, \
web-1:disk-0:/etc/hosts. A partition is said with the disk, as in disk-0.2. What there is only one of need not be said: \
web-1:/etc/hosts. The backup is read from the target itself, no more of it than is needed; with --target no server is asked, and the \
keys of a bucket are taken from the environment (see verify).";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) backup: String,
    pub(super) disk: Option<String>,
    pub(super) partition: Option<u32>,
    pub(super) path: Option<String>,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (backup, rest) = text.split_once(':').unwrap_or((text, ""));
        let (disk, path) = match rest {
            rest if rest.starts_with('/') => ("", Some(rest)),
            rest => rest.split_once(':').map_or((rest, None), |(disk, path)| (disk, Some(path))),
        };
        let (disk, partition) = match disk.split_once('.') {
            Some((disk, number)) => {
                let number = number.parse().map_err(|_| format!("{number:?} is not the number of a partition"))?;
                (disk, Some(number))
            }
            None => (disk, None),
        };
        if backup.is_empty() || path.is_some_and(|path| !path.starts_with('/')) {
            return Err("it must be BACKUP, BACKUP:DISK or BACKUP:DISK:/PATH".to_owned());
        }
        let disk = Some(disk.to_owned()).filter(|disk| !disk.is_empty());
        Ok(Self { backup: backup.to_owned(), disk, partition, path: path.map(str::to_owned) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_as_precise_as_it_is_said() {
        let place = |text: &str| text.parse::<Place>();
        let seen = |text: &str| {
            let place = place(text).unwrap();
            (place.backup, place.disk.unwrap_or_default(), place.partition, place.path.unwrap_or_default())
        };
        let (none, text) = (String::new(), str::to_owned);
        assert_eq!(seen("web-1"), (text("web-1"), none.clone(), None, none.clone()));
        assert_eq!(seen("web-1:disk-0"), (text("web-1"), text("disk-0"), None, none.clone()));
        assert_eq!(seen("web-1:disk-0.2"), (text("web-1"), text("disk-0"), Some(2), none.clone()));
        assert_eq!(seen("web-1:disk-0:/a:b"), (text("web-1"), text("disk-0"), None, text("/a:b")));
        assert_eq!(seen("web-1:/a.2:b"), (text("web-1"), none, None, text("/a.2:b")));
        for wrong in ["", ":disk", "web:disk:etc", "web:disk.x:/etc"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }
}
