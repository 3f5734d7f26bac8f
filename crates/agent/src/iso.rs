//! Small CD images in memory: ISO 9660 with Joliet names.
//!
//! Cloud-init, Windows' setup and the like read their input from a CD. The names that count are Joliet's (Unicode, upper
//! and lower case, long), which Linux and Windows both read; the old ones beside them are numbers. Everything is laid out
//! in one pass: descriptors, path tables, the directories twice, and the files once.

use std::collections::BTreeMap;

const SECTOR: usize = 2048;
/// Sectors 16 to 18 hold the descriptors; each path table has one sector, which is room for about fifty directories.
const PATH_TABLES: u32 = 19;
const FIRST_DIRECTORY: u32 = PATH_TABLES + 4;
/// A directory's record has one byte for its length and two for each character of the name.
const NAME_MAX: usize = 103;
const LABEL_MAX: usize = 16;
/// Secrets and config maps hold a megabyte; nothing larger belongs in memory.
const CONTENT_MAX: usize = 16 << 20;
/// 2000-01-01: the same content is the same image.
const DATE: [u8; 7] = [100, 1, 1, 0, 0, 0, 0];

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IsoError {
    #[error("{0:?} cannot be a CD's label: 1 to 16 letters, digits, '-' or '_'")]
    Label(String),
    #[error("{0:?} cannot be a file's name on a CD")]
    Name(String),
    #[error("{0:?} is there twice on the CD")]
    Twice(String),
    #[error("a CD of more than {CONTENT_MAX} bytes")]
    TooLarge,
    #[error("a CD with too many directories")]
    TooManyDirectories,
}

/// An image with these files; directories are made from the paths, which have `/` between names.
pub(crate) fn image(label: &str, files: &[(String, Vec<u8>)]) -> Result<Vec<u8>, IsoError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if label.is_empty() || label.len() > LABEL_MAX || !label.chars().all(is_plain) {
        return Err(IsoError::Label(label.to_owned()));
    }
    if files.iter().map(|(_, content)| content.len()).sum::<usize>() > CONTENT_MAX {
        return Err(IsoError::TooLarge);
    }
    let layout = Layout::new(tree(files)?)?;
    Ok(layout.write(label))
}

#[derive(Default)]
struct Tree<'a> {
    directories: BTreeMap<String, Tree<'a>>,
    files: BTreeMap<String, &'a [u8]>,
}

fn tree(files: &[(String, Vec<u8>)]) -> Result<Tree<'_>, IsoError> {
    let mut root = Tree::default();
    for (path, content) in files {
        let mut names: Vec<&str> = path.split('/').collect();
        // `split` gives one part at least.
        let last = names.pop().unwrap_or_default();
        let mut here = &mut root;
        for name in names {
            check_name(name)?;
            here = here.directories.entry(name.to_owned()).or_default();
        }
        check_name(last)?;
        if here.files.insert(last.to_owned(), content).is_some() || here.directories.contains_key(last) {
            return Err(IsoError::Twice(path.clone()));
        }
    }
    Ok(root)
}

fn check_name(name: &str) -> Result<(), IsoError> {
    let is_forbidden = |c: char| c.is_control() || matches!(c, '*' | '/' | ':' | ';' | '?' | '\\');
    let is_fine = !matches!(name, "" | "." | "..")
        && name.encode_utf16().count() <= NAME_MAX
        && !name.contains(is_forbidden)
        // Joliet has no surrogates.
        && name.chars().all(|c| u32::from(c) <= 0xffff);
    if is_fine { Ok(()) } else { Err(IsoError::Name(name.to_owned())) }
}

struct Directory {
    parent: usize,
    name: String,
    entries: Vec<Entry>,
    /// Where the directory is, with old names and with Joliet's.
    extents: [Extent; 2],
}

struct Entry {
    name: String,
    what: Item,
}

#[derive(Clone, Copy)]
enum Item {
    Directory(usize),
    File(Extent),
}

#[derive(Clone, Copy, Default)]
struct Extent {
    sector: u32,
    bytes: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    Old = 0,
    Joliet = 1,
}

struct Layout<'a> {
    /// In the order of the path table: by depth, then parent, then name.
    directories: Vec<Directory>,
    files: Vec<(Extent, &'a [u8])>,
    sectors: u32,
}

impl<'a> Layout<'a> {
    fn new(root: Tree<'a>) -> Result<Layout<'a>, IsoError> {
        let mut layout = Layout { directories: Vec::new(), files: Vec::new(), sectors: FIRST_DIRECTORY };
        let contents = layout.collect(root);
        // A record of the path table takes 8 bytes and the name.
        let table: usize = layout.directories.iter().map(|directory| 10 + 2 * directory.name.len()).sum();
        if table > SECTOR {
            return Err(IsoError::TooManyDirectories);
        }
        for names in [Names::Old, Names::Joliet] {
            for index in 0..layout.directories.len() {
                let bytes = layout.records(index, names).len();
                layout.directories[index].extents[names as usize] = layout.place(bytes);
            }
        }
        layout.place_files(contents);
        Ok(layout)
    }

    /// Numbers the directories breadth first and keeps each file's content by its directory and place there.
    fn collect(&mut self, root: Tree<'a>) -> Vec<(usize, usize, &'a [u8])> {
        let mut contents = Vec::new();
        let mut level = vec![(0, String::new(), root)];
        while !level.is_empty() {
            let mut below = Vec::new();
            for (parent, name, tree) in level {
                let index = self.directories.len();
                let mut entries = Vec::new();
                for (name, content) in tree.files {
                    contents.push((index, entries.len(), content));
                    entries.push(Entry { name, what: Item::File(Extent::default()) });
                }
                self.directories.push(Directory { parent, name: name.clone(), entries, extents: Default::default() });
                if index != 0 {
                    self.directories[parent].entries.push(Entry { name, what: Item::Directory(index) });
                }
                below.extend(tree.directories.into_iter().map(|(name, tree)| (index, name, tree)));
            }
            level = below;
        }
        contents
    }

    fn place_files(&mut self, contents: Vec<(usize, usize, &'a [u8])>) {
        for (directory, entry, content) in contents {
            let extent = Extent { bytes: size(content.len()), ..self.place(content.len()) };
            self.directories[directory].entries[entry].what = Item::File(extent);
            self.files.push((extent, content));
        }
        for directory in &mut self.directories {
            directory.entries.sort_by(|a, b| a.name.encode_utf16().cmp(b.name.encode_utf16()));
        }
    }

    /// The next sectors, whole ones.
    fn place(&mut self, bytes: usize) -> Extent {
        let sectors = size(bytes.div_ceil(SECTOR));
        let extent = Extent { sector: self.sectors, bytes: sectors * size(SECTOR) };
        self.sectors += sectors;
        extent
    }

    fn extent(&self, directory: usize, names: Names) -> Extent {
        self.directories[directory].extents[names as usize]
    }

    /// A directory's records; none crosses a sector's end.
    fn records(&self, index: usize, names: Names) -> Vec<u8> {
        let directory = &self.directories[index];
        let mut records = Vec::new();
        let mut add = |record: Vec<u8>| {
            let left = SECTOR - records.len() % SECTOR;
            if record.len() > left {
                records.resize(records.len() + left, 0);
            }
            records.extend(record);
        };
        add(record(&[0], self.extent(index, names), true));
        add(record(&[1], self.extent(directory.parent, names), true));
        for (number, entry) in directory.entries.iter().enumerate() {
            let (extent, number, is_directory) = match entry.what {
                Item::Directory(index) => (self.extent(index, names), index, true),
                Item::File(extent) => (extent, number, false),
            };
            add(record(&encoded(&entry.name, number, is_directory, names), extent, is_directory));
        }
        records
    }

    fn path_table(&self, names: Names, is_big_endian: bool) -> Vec<u8> {
        let mut table = Vec::new();
        for (number, directory) in self.directories.iter().enumerate() {
            let name = match number {
                0 => vec![0],
                _ => encoded(&directory.name, number, true, names),
            };
            let sector = directory.extents[names as usize].sector;
            // Fewer than a hundred fit.
            let parent = u16::try_from(directory.parent + 1).unwrap_or(1);
            table.extend([length(name.len()), 0]);
            if is_big_endian {
                table.extend(sector.to_be_bytes());
                table.extend(parent.to_be_bytes());
            } else {
                table.extend(sector.to_le_bytes());
                table.extend(parent.to_le_bytes());
            }
            table.extend(&name);
            if name.len() % 2 == 1 {
                table.push(0);
            }
        }
        table
    }

    fn write(&self, label: &str) -> Vec<u8> {
        let mut image = vec![0; self.sectors as usize * SECTOR];
        let mut put = |sector: u32, bytes: &[u8]| {
            let start = sector as usize * SECTOR;
            image[start..start + bytes.len()].copy_from_slice(bytes);
        };
        put(16, &self.descriptor(label, Names::Old));
        put(17, &self.descriptor(label, Names::Joliet));
        put(18, &[&[255][..], b"CD001", &[1]].concat());
        for (at, (names, is_big_endian)) in (PATH_TABLES..).zip([
            (Names::Old, false),
            (Names::Old, true),
            (Names::Joliet, false),
            (Names::Joliet, true),
        ]) {
            put(at, &self.path_table(names, is_big_endian));
        }
        for names in [Names::Old, Names::Joliet] {
            for index in 0..self.directories.len() {
                put(self.extent(index, names).sector, &self.records(index, names));
            }
        }
        for (extent, content) in &self.files {
            put(extent.sector, content);
        }
        image
    }

    fn descriptor(&self, label: &str, names: Names) -> Vec<u8> {
        let is_joliet = names == Names::Joliet;
        let text = |text: &str, width: usize| -> Vec<u8> {
            let mut bytes: Vec<u8> = if is_joliet {
                text.encode_utf16().flat_map(u16::to_be_bytes).collect()
            } else {
                text.as_bytes().to_vec()
            };
            while bytes.len() < width {
                bytes.extend(if is_joliet { &[0, b' '][..] } else { b" " });
            }
            bytes.truncate(width);
            bytes
        };
        let tables = PATH_TABLES + if is_joliet { 2 } else { 0 };
        let mut d = vec![if is_joliet { 2 } else { 1 }];
        d.extend(b"CD001\x01\0");
        d.extend(text("", 32));
        d.extend(text(label, 32));
        d.extend([0; 8]);
        d.extend(both32(self.sectors));
        let mut escapes = [0; 32];
        if is_joliet {
            // Level 3: Unicode.
            escapes[..3].copy_from_slice(b"%/E");
        }
        d.extend(escapes);
        d.extend([both16(1), both16(1), both16(2048)].concat());
        d.extend(both32(size(self.path_table(names, false).len())));
        d.extend(tables.to_le_bytes());
        d.extend([0; 4]);
        d.extend((tables + 1).to_be_bytes());
        d.extend([0; 4]);
        d.extend(record(&[0], self.extent(0, names), true));
        // Volume set, publisher, preparer, application; then three file names.
        for width in [128, 128, 128, 128, 37, 37, 37] {
            d.extend(text("", width));
        }
        for _ in 0..4 {
            d.extend(b"0000000000000000\0");
        }
        d.push(1);
        d
    }
}

/// Old names are numbers: nobody who reads Joliet sees them.
fn encoded(name: &str, number: usize, is_directory: bool, names: Names) -> Vec<u8> {
    match (names, is_directory) {
        (Names::Joliet, _) => name.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        (Names::Old, true) => format!("D{number:07}").into_bytes(),
        (Names::Old, false) => format!("F{number:07}.;1").into_bytes(),
    }
}

fn record(name: &[u8], extent: Extent, is_directory: bool) -> Vec<u8> {
    let bytes = 33 + name.len();
    let padded = bytes + bytes % 2;
    let mut record = vec![length(padded), 0];
    record.extend(both32(extent.sector));
    record.extend(both32(extent.bytes));
    record.extend(DATE);
    record.extend([if is_directory { 2 } else { 0 }, 0, 0]);
    record.extend(both16(1));
    record.push(length(name.len()));
    record.extend(name);
    record.resize(padded, 0);
    record
}

fn both16(value: u16) -> Vec<u8> {
    [value.to_le_bytes(), value.to_be_bytes()].concat()
}

fn both32(value: u32) -> Vec<u8> {
    [value.to_le_bytes(), value.to_be_bytes()].concat()
}

/// Lengths are bounded by [`NAME_MAX`].
fn length(value: usize) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}

/// Sizes are bounded by [`CONTENT_MAX`].
fn size(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn file(path: &str, content: &str) -> (String, Vec<u8>) {
        (path.to_owned(), content.as_bytes().to_vec())
    }

    #[test]
    fn bad_names_and_sizes_are_refused() {
        let one = |path: &str| image("cidata", &[file(path, "x")]);
        for bad in ["", "a//b", "../x", "a/..", "a;b", "a\nb", &"x".repeat(104), "a\u{1f600}"] {
            assert!(matches!(one(bad), Err(IsoError::Name(_))), "{bad:?}");
        }
        assert!(matches!(image("two words", &[]), Err(IsoError::Label(_))));
        assert!(matches!(image("", &[]), Err(IsoError::Label(_))));
        assert!(matches!(image("x", &[file("a", ""), file("a", "")]), Err(IsoError::Twice(_))));
        assert!(matches!(image("x", &[file("a/b", ""), file("a", "")]), Err(IsoError::Twice(_))));
        assert_eq!(image("x", &[("a".into(), vec![0; CONTENT_MAX + 1])]), Err(IsoError::TooLarge));
    }

    /// What another program makes of it. Skipped where there is none.
    #[test]
    fn xorriso_reads_every_file_back() {
        if Command::new("xorriso").arg("-version").output().is_err() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut files = vec![
            file("user-data", "#cloud-config\n"),
            file("meta-data", ""),
            file("openstack/latest/meta_data.json", "{}"),
            file("openstack/latest/user_data", &"y".repeat(5000)),
            file(&format!("{}.txt", "n".repeat(90)), "long"),
        ];
        // More than one sector of records.
        files.extend((0..80).map(|n| file(&format!("many/entry-with-a-name-{n}"), &n.to_string())));
        let path = dir.path().join("cd.iso");
        std::fs::write(&path, image("cidata", &files).unwrap()).unwrap();
        let out = dir.path().join("out");
        let output = Command::new("xorriso")
            .args(["-osirrox", "on", "-read_fs", "norock", "-indev"])
            .arg(&path)
            .args(["-pvd_info", "-extract", "/"])
            .arg(&out)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("cidata"), "{said}");
        for (name, content) in &files {
            assert_eq!(&std::fs::read(out.join(name)).unwrap_or_else(|error| panic!("{name}: {error}")), content);
        }
    }
}
