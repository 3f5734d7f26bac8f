//! Who has which address. Kept in one small file an interface, so that a change costs one write and a crash loses none.
//!
//! An address follows from the names of machine and interface, so it is the same wherever this is asked first; when two
//! meet at one address, the later takes the next, and the file remembers. Files of machines that are stopped stay, that
//! they get their address back; the oldest go when there are too many.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Mac;
use crate::error::NetError;
use crate::nic::{Attachment, HostPort, Key, Nic, hex};
use crate::subnet::Subnet;

/// So many stopped machines keep their addresses.
const IDLE_LIMIT: usize = 1024;
/// A guest may use as many addresses as it likes; we remember so many.
const LEARNED_LIMIT: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    key: Key,
    /// The number on the default network, for those that are there.
    pub(crate) index: Option<u32>,
    pub(crate) tap: String,
    /// What is plugged in; nothing while the machine is stopped.
    nic: Option<Nic>,
    /// True once the guest has taken its IPv4 address.
    pub(crate) is_bound: bool,
    /// Addresses that the guest was seen to use, the latest last.
    pub(crate) learned: Vec<IpAddr>,
}

/// An interface that is plugged in.
#[derive(Debug, Clone)]
pub(crate) struct Plugged {
    pub(crate) nic: Nic,
    pub(crate) tap: String,
    pub(crate) index: Option<u32>,
    pub(crate) is_bound: bool,
    pub(crate) learned: Vec<IpAddr>,
}

#[derive(Debug)]
pub(crate) struct Records {
    dir: PathBuf,
    by_key: HashMap<Key, Record>,
    idle: VecDeque<Key>,
}

impl Records {
    pub(crate) fn open(dir: &Path, subnet: &Subnet) -> Result<Records, NetError> {
        fs::create_dir_all(dir).map_err(|source| file("create", dir, source))?;
        let mut records = Records { dir: dir.to_owned(), by_key: HashMap::new(), idle: VecDeque::new() };
        let mut indexes = HashSet::new();
        for entry in fs::read_dir(dir).map_err(|source| file("list", dir, source))? {
            let path = entry.map_err(|source| file("list", dir, source))?.path();
            match read(&path) {
                Some(mut record) => {
                    // Another subnet, or a file that somebody copied.
                    record.index = record.index.filter(|index| subnet.is_usable(*index) && indexes.insert(*index));
                    if record.nic.is_none() {
                        records.idle.push_back(record.key.clone());
                    }
                    records.by_key.insert(record.key.clone(), record);
                }
                // A write that a power cut interrupted: the address follows from the name anyway.
                None => remove(&path)?,
            }
        }
        Ok(records)
    }

    /// Finds or makes the record of an interface that is being plugged in.
    pub(crate) fn claim(&mut self, nic: &Nic, tap: &str, subnet: &Subnet) -> Result<Plugged, NetError> {
        let key = nic.key();
        self.refuse_conflicts(nic, &key)?;
        let known = self.by_key.get(&key);
        let index = match known.and_then(|record| record.index) {
            _ if !nic.is_nat() => None,
            Some(index) => Some(index),
            None => Some(self.free_index(&key, subnet).ok_or(NetError::NoAddressLeft(subnet.v4))?),
        };
        let is_same = known.and_then(|record| record.nic.as_ref()).is_some_and(|known| known.vmi_uid == nic.vmi_uid);
        let record = Record {
            index,
            tap: tap.to_owned(),
            nic: Some(nic.clone()),
            is_bound: is_same && known.is_some_and(|record| record.is_bound),
            learned: known.filter(|_| is_same).map(|record| record.learned.clone()).unwrap_or_default(),
            key: key.clone(),
        };
        if known != Some(&record) {
            self.write(&record)?;
        }
        let plugged = record.plugged(nic.clone());
        self.idle.retain(|idle| *idle != key);
        self.by_key.insert(key, record);
        Ok(plugged)
    }

    fn refuse_conflicts(&self, nic: &Nic, key: &Key) -> Result<(), NetError> {
        let Attachment::Nat { host_ports, .. } = &nic.attachment else { return Ok(()) };
        for other in self.plugged().filter(|other| other.nic.key() != *key) {
            let Attachment::Nat { host_ports: taken, .. } = &other.nic.attachment else { continue };
            let holder = || format!("{}/{}", other.nic.namespace, other.nic.vm_name);
            if other.nic.mac == nic.mac {
                return Err(NetError::MacInUse { mac: nic.mac, holder: holder() });
            }
            let is_taken = |port: &&HostPort| {
                taken.iter().any(|other| other.host_port == port.host_port && other.protocol == port.protocol)
            };
            if let Some(port) = host_ports.iter().find(is_taken) {
                return Err(NetError::HostPortInUse { port: port.host_port, holder: holder() });
            }
        }
        Ok(())
    }

    /// The index that the name leads to, or the next that nobody has; addresses of stopped machines come last.
    fn free_index(&self, key: &Key, subnet: &Subnet) -> Option<u32> {
        let range = subnet.indexes();
        let span = range.end - range.start;
        let [a, b, c, d, ..] = key.hash();
        let start = u32::from_be_bytes([a, b, c, d]) % span;
        let candidates = || {
            let nth = |step: u32| range.start + (start + step) % span;
            (0..span).map(nth).filter(|index| subnet.is_usable(*index))
        };
        let all: HashSet<u32> = self.by_key.values().filter_map(|record| record.index).collect();
        let used: HashSet<u32> = self.plugged().filter_map(|plugged| plugged.index).collect();
        candidates().find(|index| !all.contains(index)).or_else(|| candidates().find(|index| !used.contains(index)))
    }

    /// Marks an interface as unplugged, and says what it was.
    pub(crate) fn release(&mut self, vmi_uid: &str, name: &str) -> Result<Option<Plugged>, NetError> {
        let Some(plugged) = self.plugged().find(|one| one.nic.vmi_uid == vmi_uid && one.nic.name == name) else {
            return Ok(None);
        };
        let key = plugged.nic.key();
        if plugged.nic.is_nat() {
            self.change(&key, |record| {
                record.nic = None;
                record.is_bound = false;
                record.learned.clear();
            })?;
            self.idle.push_back(key);
            if self.idle.len() > IDLE_LIMIT
                && let Some(oldest) = self.idle.pop_front()
            {
                self.forget(&oldest)?;
            }
        } else {
            self.forget(&key)?;
        }
        Ok(Some(plugged))
    }

    /// Gives up the addresses of a machine that is gone for good. Those still plugged in stay.
    pub(crate) fn forget_machine(&mut self, namespace: &str, vm_name: &str) -> Result<(), NetError> {
        let of_machine = |key: &&Key| key.namespace == namespace && key.vm_name == vm_name;
        let gone: Vec<Key> = self.idle.iter().filter(of_machine).cloned().collect();
        gone.iter().try_for_each(|key| self.forget(key))
    }

    /// The machines of addresses that are kept for a next run, by namespace and name.
    pub(crate) fn idle_machines(&self) -> Vec<(String, String)> {
        self.idle.iter().map(|key| (key.namespace.clone(), key.vm_name.clone())).collect()
    }

    fn forget(&mut self, key: &Key) -> Result<(), NetError> {
        remove(&self.path(key))?;
        self.idle.retain(|idle| idle != key);
        self.by_key.remove(key);
        Ok(())
    }

    /// Notes that a guest has taken its address. True if that is news.
    pub(crate) fn bind(&mut self, index: u32) -> Result<bool, NetError> {
        let Some(key) = self.key_of(index) else { return Ok(false) };
        self.change(&key, |record| record.is_bound = true)
    }

    /// Notes an address that a guest was seen to use. True if that is news.
    pub(crate) fn learn(&mut self, key: &Key, address: IpAddr) -> Result<bool, NetError> {
        let is_known = self.by_key.get(key).is_none_or(|record| record.learned.contains(&address));
        if is_known {
            return Ok(false);
        }
        self.change(key, |record| {
            if record.learned.len() >= LEARNED_LIMIT {
                record.learned.remove(0);
            }
            record.learned.push(address);
        })
    }

    fn change(&mut self, key: &Key, change: impl FnOnce(&mut Record)) -> Result<bool, NetError> {
        let Some(known) = self.by_key.get(key) else { return Ok(false) };
        let mut record = known.clone();
        change(&mut record);
        if record == *known {
            return Ok(false);
        }
        self.write(&record)?;
        self.by_key.insert(key.clone(), record);
        Ok(true)
    }

    pub(crate) fn plugged(&self) -> impl Iterator<Item = Plugged> + '_ {
        self.by_key.values().filter_map(|record| Some(record.plugged(record.nic.clone()?)))
    }

    pub(crate) fn find(&self, vmi_uid: &str, name: &str) -> Option<Plugged> {
        self.plugged().find(|one| one.nic.vmi_uid == vmi_uid && one.nic.name == name)
    }

    pub(crate) fn by_mac(&self, mac: Mac) -> Option<Plugged> {
        self.plugged().find(|one| one.nic.mac == mac)
    }

    pub(crate) fn nat_by_mac(&self, mac: Mac) -> Option<Plugged> {
        self.plugged().find(|one| one.nic.mac == mac && one.index.is_some())
    }

    pub(crate) fn by_index(&self, index: u32) -> Option<Plugged> {
        self.plugged().find(|one| one.index == Some(index))
    }

    fn key_of(&self, index: u32) -> Option<Key> {
        self.by_index(index).map(|plugged| plugged.nic.key())
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.dir.join(hex(&key.hash()[..16])).with_extension("json")
    }

    /// No flush to the disk: what a power cut takes belongs to guests that it stopped too.
    fn write(&self, record: &Record) -> Result<(), NetError> {
        let path = self.path(&record.key);
        let temporary = path.with_extension("new");
        let written = || -> io::Result<()> {
            let mut to = fs::File::create(&temporary)?;
            to.write_all(&serde_json::to_vec(record)?)?;
            fs::rename(&temporary, &path)
        };
        written().map_err(|source| file("write", &path, source))
    }
}

impl Record {
    fn plugged(&self, nic: Nic) -> Plugged {
        Plugged {
            nic,
            tap: self.tap.clone(),
            index: self.index,
            is_bound: self.is_bound,
            learned: self.learned.clone(),
        }
    }
}

fn read(path: &Path) -> Option<Record> {
    let content = fs::read(path).ok().filter(|_| path.extension().is_some_and(|extension| extension == "json"))?;
    serde_json::from_slice(&content).ok()
}

fn remove(path: &Path) -> Result<(), NetError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(file("remove", path, source)),
        _ => Ok(()),
    }
}

fn file(operation: &'static str, path: &Path, source: io::Error) -> NetError {
    NetError::File { operation, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::Protocol;

    fn subnet(net: &str) -> Subnet {
        Subnet::choose(Some(net.parse().unwrap()), &[], [0; 5]).unwrap()
    }

    fn nic(vm: &str, run: u32, last: u8) -> Nic {
        Nic {
            vmi_uid: format!("{vm}-{run}"),
            namespace: "default".into(),
            vm_name: vm.into(),
            hostname: vm.into(),
            name: "default".into(),
            mac: Mac([2, 0, 0, 0, 0, last]),
            attachment: Attachment::Nat { ports: vec![], host_ports: vec![] },
            queues: 1,
            told: crate::Told::default(),
        }
    }

    #[test]
    fn an_address_survives_stops_and_restarts() {
        let dir = tempfile::tempdir().unwrap();
        let subnet = subnet("10.1.0.0/16");
        let mut records = Records::open(dir.path(), &subnet).unwrap();
        let first = records.claim(&nic("a", 1, 1), "ct1", &subnet).unwrap();
        assert!(records.bind(first.index.unwrap()).unwrap());
        assert!(!records.bind(first.index.unwrap()).unwrap(), "no news");

        let mut records = Records::open(dir.path(), &subnet).unwrap();
        let found = records.find("a-1", "default").unwrap();
        assert_eq!((found.index, found.is_bound), (first.index, true));
        records.release("a-1", "default").unwrap().unwrap();
        assert!(records.release("a-1", "default").unwrap().is_none(), "idempotent");
        assert!(records.by_mac(Mac([2, 0, 0, 0, 0, 1])).is_none());

        let mut records = Records::open(dir.path(), &subnet).unwrap();
        let again = records.claim(&nic("a", 2, 9), "ct2", &subnet).unwrap();
        assert_eq!((again.index, again.is_bound), (first.index, false));
        records.release("a-2", "default").unwrap();
        assert_eq!(records.idle_machines(), [("default".to_owned(), "a".to_owned())]);
        records.forget_machine("default", "a").unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_small_subnet_is_used_up_and_stopped_machines_give_way() {
        let dir = tempfile::tempdir().unwrap();
        let subnet = subnet("10.1.0.0/28");
        let mut records = Records::open(dir.path(), &subnet).unwrap();
        let mut indexes = HashSet::new();
        let room = u8::try_from(subnet.indexes().count()).unwrap();
        for n in 0..room {
            let claimed = records.claim(&nic(&format!("vm{n}"), 1, n), "ct", &subnet).unwrap();
            assert!(indexes.insert(claimed.index), "given twice");
        }
        let refused = records.claim(&nic("more", 1, 200), "ct", &subnet).unwrap_err();
        assert!(matches!(refused, NetError::NoAddressLeft(_)));
        let released = records.release("vm0-1", "default").unwrap().unwrap();
        let claimed = records.claim(&nic("more", 1, 200), "ct", &subnet).unwrap();
        assert_eq!(claimed.index, released.index);
    }

    #[test]
    fn what_belongs_to_another_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let subnet = subnet("10.1.0.0/16");
        let mut records = Records::open(dir.path(), &subnet).unwrap();
        let mut first = nic("a", 1, 1);
        let port = HostPort { protocol: Protocol::Tcp, host_port: 2222, guest_port: 22 };
        first.attachment = Attachment::Nat { ports: vec![], host_ports: vec![port] };
        records.claim(&first, "ct1", &subnet).unwrap();
        let twin = records.claim(&nic("b", 1, 1), "ct2", &subnet).unwrap_err();
        assert_eq!(twin.to_string(), "the hardware address 02:00:00:00:00:01 is already used by default/a");
        let mut rival = nic("b", 1, 2);
        rival.attachment = first.attachment.clone();
        let rival = records.claim(&rival, "ct2", &subnet).unwrap_err();
        assert_eq!(rival.to_string(), "port 2222 of the host already leads to default/a");
        // The next run of the same machine is no rival of the last.
        first.vmi_uid = "a-2".into();
        records.claim(&first, "ct3", &subnet).unwrap();
    }

    #[test]
    fn a_torn_file_is_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("0011.json"), b"").unwrap();
        fs::write(dir.path().join("0011.new"), b"{").unwrap();
        let records = Records::open(dir.path(), &subnet("10.1.0.0/16")).unwrap();
        assert_eq!(records.plugged().count(), 0);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn learned_addresses_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let subnet = subnet("10.1.0.0/16");
        let mut records = Records::open(dir.path(), &subnet).unwrap();
        let nic = nic("a", 1, 1);
        records.claim(&nic, "ct1", &subnet).unwrap();
        for last in 0..20 {
            assert!(records.learn(&nic.key(), IpAddr::from([192, 0, 2, last])).unwrap());
        }
        assert!(!records.learn(&nic.key(), IpAddr::from([192, 0, 2, 19])).unwrap());
        assert_eq!(records.find("a-1", "default").unwrap().learned.len(), LEARNED_LIMIT);
    }
}
