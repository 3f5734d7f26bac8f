//! Every format, packed in every way, from a real server.

use std::fs;
use std::os::unix::fs::MetadataExt;

use croft_image::{Compression, Format, ImportError, Transport, import_url};

use super::server::Server;
use super::{DISK, Place, run, same, text};

#[tokio::test]
async fn every_format_and_packing_becomes_the_same_raw_disk() {
    let place = Place::new();
    let disk = place.disk();
    for (name, args, format) in [
        ("raw", &[][..], Format::Raw),
        ("qcow2", &["-O", "qcow2"], Format::Qcow2),
        ("qcow2-packed", &["-O", "qcow2", "-c"], Format::Qcow2),
        ("vmdk", &["-O", "vmdk"], Format::Vmdk),
        ("vmdk-stream", &["-O", "vmdk", "-o", "subformat=streamOptimized"], Format::Vmdk),
        ("vhdx", &["-O", "vhdx"], Format::Vhdx),
        ("vdi", &["-O", "vdi"], Format::Vdi),
        ("vhd", &["-O", "vpc", "-o", "force_size=on"], Format::Vpc),
        ("vhd-fixed", &["-O", "vpc", "-o", "force_size=on,subformat=fixed"], Format::Raw),
    ] {
        let image = place.made(name);
        if args.is_empty() {
            fs::copy(&disk, &image).unwrap();
        } else {
            let args = [&["convert", "-f", "raw"], args, &[text(&disk), text(&image)]].concat();
            run("qemu-img", &args);
        }
        for (packer, compression) in [
            (None, None),
            (Some(["xz", "-0k"]), Some(Compression::Xz)),
            (Some(["gzip", "-1k"]), Some(Compression::Gzip)),
            (Some(["zstd", "-1qk"]), Some(Compression::Zstd)),
        ] {
            let file = match packer {
                None => image.clone(),
                Some([program, flags]) => {
                    run(program, &[flags, text(&image)]);
                    let ending = match program {
                        "gzip" => "gz",
                        "zstd" => "zst",
                        other => other,
                    };
                    place.made(&format!("{name}.{ending}"))
                }
            };
            let server = Server::honest(fs::read(&file).unwrap()).await;
            let imported =
                import_url(&server.url("image"), &Transport::default(), &place.destination(), &place.options()).await;
            let imported = imported.unwrap_or_else(|error| panic!("{name} {packer:?}: {error:?}"));
            assert_eq!((imported.format, imported.compression), (format, compression), "{name}");
            assert_eq!((imported.virtual_size, imported.size), (DISK, fs::metadata(&file).unwrap().len()), "{name}");
            assert!(same(&place.destination(), &disk), "{name} {packer:?} has other content");
            let stored = fs::metadata(place.destination()).unwrap();
            assert!(stored.blocks() * 512 < 8 << 20, "{name} {packer:?} is not sparse: {} blocks", stored.blocks());
            assert_eq!((stored.uid(), stored.mode() & 0o777), (0, 0o600), "{name} {packer:?}");
            assert_eq!(place.left(), ["image.raw"]);
        }
    }
}

#[tokio::test]
async fn an_iso_is_taken_as_it_is() {
    let place = Place::new();
    let iso = place.made("cd.iso");
    fs::create_dir(place.made("tree")).unwrap();
    fs::write(place.made("tree").join("user-data"), "#cloud-config\n").unwrap();
    run("xorriso", &["-as", "mkisofs", "-quiet", "-o", text(&iso), text(&place.made("tree"))]);
    let server = Server::honest(fs::read(&iso).unwrap()).await;
    let imported = import_url(&server.url("cd"), &Transport::default(), &place.destination(), &place.options()).await;
    assert_eq!(imported.unwrap().format, Format::Iso);
    assert!(same(&place.destination(), &iso));
}

#[tokio::test]
async fn an_image_that_would_read_a_file_of_this_host_is_refused_and_nothing_is_left() {
    let place = Place::new();
    let secret = place.made("secret");
    fs::write(&secret, vec![42; 1 << 20]).unwrap();
    let image = place.made("evil.qcow2");
    run("qemu-img", &["create", "-q", "-f", "qcow2", "-b", text(&secret), "-F", "raw", text(&image)]);
    for pack in [false, true] {
        let mut file = image.clone();
        if pack {
            run("gzip", &["-k", text(&image)]);
            file = place.made("evil.qcow2.gz");
        }
        let server = Server::honest(fs::read(&file).unwrap()).await;
        let refused = import_url(&server.url("x"), &Transport::default(), &place.destination(), &place.options()).await;
        let error = refused.unwrap_err();
        assert!(matches!(error, ImportError::Format(_)) && error.to_string().contains("backing file"), "{error}");
        assert!(place.left().is_empty(), "{:?}", place.left());
    }
}

#[tokio::test]
async fn what_the_converter_cannot_read_is_told_in_its_words() {
    let place = Place::new();
    let disk = place.disk();
    let image = place.made("image.vmdk");
    run("qemu-img", &["convert", "-O", "vmdk", "-o", "subformat=streamOptimized", text(&disk), text(&image)]);
    let mut bytes = fs::read(&image).unwrap();
    // A compressed grain.
    bytes[(128 << 9) + 600..(128 << 9) + 9000].fill(0xff);
    let server = Server::honest(bytes).await;
    let refused = import_url(&server.url("x"), &Transport::default(), &place.destination(), &place.options()).await;
    assert!(matches!(refused, Err(ImportError::Convert { .. })), "{refused:?}");
    assert!(place.left().is_empty(), "{:?}", place.left());
}
