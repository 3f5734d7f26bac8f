"""Backups in the public layout, written and read by itself: it shares nothing with Croft.

golden.py write DIR                      makes a target in DIR, and in DIR/expected the disks that are in it
golden.py read DIR VOLUME BACKUP FILE    puts a disk into FILE as Longhorn would, and fails wherever Longhorn would refuse
"""

import gzip
import hashlib
import json
import os
import random
import sys

import lz4.frame

BLOCK = 2 * 1024 * 1024
TIME = "2026-01-02T03:04:05Z"

pack = {
    "none": lambda data: data,
    "gzip": gzip.compress,
    # As pierrec/lz4 writes by default: independent blocks of 4 MiB, a checksum of the content.
    "lz4": lambda data: lz4.frame.compress(
        data, block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False, content_checksum=True, store_size=False
    ),
}
unpack = {"none": lambda data: data, "gzip": gzip.decompress, "lz4": lz4.frame.decompress}


def checksum(data):
    return hashlib.sha512(data).hexdigest()[:64]


def put(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def volume_dir(root, volume):
    name = checksum(volume.encode())
    return f"{root}/backupstore/volumes/{name[:2]}/{name[2:4]}/{volume}"


def put_block(blocks, method, data):
    name = checksum(data)
    put(f"{blocks}/{name[:2]}/{name[2:4]}/{name}.blk", pack[method](data))
    return name


def go_string(text):
    """What Go's `json:",string"` makes of a text."""
    return json.dumps(text)


def volume_config(volume, size, method, image="", is_old=False):
    config = {
        "Name": volume, "Size": str(size), "Labels": None, "CreatedTime": TIME, "LastBackupName": "backup-2",
        "LastBackupAt": TIME, "BlockCount": "5",
    }
    if not is_old:
        config |= {
            "BackingImageName": go_string(image), "BackingImageChecksum": go_string(""),
            "CompressionMethod": go_string(method), "StorageClassName": go_string("longhorn"),
            "DataEngine": go_string("v1"),
        }
    return json.dumps(config).encode()


def backup_config(volume, name, method, blocks, created=TIME, is_old=False):
    config = {
        "Name": name, "VolumeName": volume, "SnapshotName": f"snap-{name}", "SnapshotCreatedAt": TIME,
        "CreatedTime": created, "Size": str(len(blocks) * BLOCK), "Labels": {"KubernetesStatus": "{}"},
        "Parameters": None, "IsIncremental": False, "CompressionMethod": method, "NewlyUploadedDataSize": "1",
        "ReUploadedDataSize": "0", "ProcessingBlocks": {},
        "Blocks": [{"Offset": index * BLOCK, "BlockChecksum": blocks[index]} for index in sorted(blocks)],
        "SingleFile": {"FilePath": ""},
    }
    if is_old:
        for key in ("CompressionMethod", "Parameters", "NewlyUploadedDataSize", "ReUploadedDataSize"):
            del config[key]
    return json.dumps(config).encode()


def write_volume(root, volume, method, is_old=False):
    noise = random.Random(volume)
    disk = [bytes(BLOCK)] * 8
    disk[0], disk[2] = noise.randbytes(BLOCK), b"longhorn" * (BLOCK // 8)
    disk[7] = disk[0]
    dir = volume_dir(root, volume)
    put(f"{dir}/volume.cfg", volume_config(volume, 8 * BLOCK, method, is_old=is_old))
    for name in ("backup-1", "backup-2"):
        if name == "backup-2":
            disk[2], disk[5] = bytes(BLOCK), noise.randbytes(BLOCK)
        # Longhorn keeps a block that became zero as a block of zeros.
        kept = [index for index in range(8) if any(disk[index]) or (index == 2)]
        blocks = {index: put_block(f"{dir}/blocks", method, disk[index]) for index in kept}
        put(f"{dir}/backups/backup_{name}.cfg", backup_config(volume, name, method, blocks, is_old=is_old))
        put(f"{root}/expected/{volume}.{name}", b"".join(disk))
    under_way = backup_config(volume, "backup-under-way", method, {}, created="")
    put(f"{dir}/backups/backup_backup-under-way.cfg", under_way)


def write_image(root):
    noise = random.Random("image")
    image = noise.randbytes(BLOCK) + bytes(BLOCK) + noise.randbytes(24 * 512)
    blocks, pool = {}, f"{root}/backupstore/backing-images/blocks"
    for index in (0, 2):
        blocks[index] = put_block(pool, "lz4", image[index * BLOCK : (index + 1) * BLOCK])
    config = {
        "Name": "vmi-1", "Size": str(len(image)), "BlockCount": "2", "Checksum": hashlib.sha512(image).hexdigest(),
        "Labels": None, "CompressionMethod": "lz4", "CreatedTime": TIME, "CompleteTime": TIME, "Secret": "",
        "SecretNamespace": "", "ProcessingBlocks": {"Blocks": {}},
        "Blocks": [{"Offset": index * BLOCK, "BlockChecksum": blocks[index]} for index in blocks],
    }
    put(f"{root}/backupstore/backing-images/backing-images/vmi-1/backing-image.cfg", json.dumps(config).encode())
    put(f"{root}/expected/vmi-1", image)
    # A volume on top of it: only what differs is in its backup.
    dir, changed = volume_dir(root, "pvc-image"), noise.randbytes(BLOCK)
    put(f"{dir}/volume.cfg", volume_config("pvc-image", 8 * BLOCK, "lz4", image="vmi-1"))
    blocks = {1: put_block(f"{dir}/blocks", "lz4", changed)}
    put(f"{dir}/backups/backup_backup-image.cfg", backup_config("pvc-image", "backup-image", "lz4", blocks))
    disk = image[:BLOCK] + changed + image[2 * BLOCK :]
    put(f"{root}/expected/pvc-image.backup-image", disk + bytes(8 * BLOCK - len(disk)))


def write_harvester(root):
    def machine(name):
        claim = {"metadata": {"name": "disk"}, "spec": {"volumeName": "pvc-lz4", "storageClassName": "longhorn"}}
        volume = {
            "name": f"{name}-disk", "volumeName": "disk", "csiDriverName": "driver.longhorn.io", "creationTime": None,
            "persistentVolumeClaim": claim, "longhornBackupName": "backup-2", "volumeSize": 8 * BLOCK, "readyToUse": True,
        }
        source = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}
        return json.dumps({
            "name": name, "namespace": "default", "backupSpec": {"source": source, "type": "backup"},
            "vmSourceSpec": {"metadata": {"name": "vm"}, "spec": {"runStrategy": "Always"}},
            "volumeBackups": [volume], "secretBackups": [{"name": "cloud-init", "data": {"userdata": "eA=="}}],
        }).encode()

    put(f"{root}/harvester/vmbackups/default/nightly.cfg", machine("nightly"))
    put(f"{root}/harvester/vmbackups/default-old-style.cfg", machine("old-style"))
    image = {"name": "image-1", "namespace": "default", "url": "nfs://h:/x?backingImage=vmi-1", "displayName": "Debian"}
    put(f"{root}/harvester/vmimages/default/image-1.cfg", json.dumps(image).encode())


def read(root, volume, backup, out):
    dir = volume_dir(root, volume)
    config = json.load(open(f"{dir}/volume.cfg"))
    for key in ("BackingImageName", "BackingImageChecksum", "CompressionMethod", "StorageClassName", "DataEngine"):
        json.loads(config[key])
    size, method = int(config["Size"]), json.loads(config["CompressionMethod"])
    assert size > 0 and size % BLOCK == 0, size
    config = json.load(open(f"{dir}/backups/backup_{backup}.cfg"))
    assert config["CreatedTime"] and config["CompressionMethod"] == method, config
    assert int(config["Size"]) == len(config["Blocks"]) * BLOCK
    offsets = [block["Offset"] for block in config["Blocks"]]
    assert offsets == sorted(set(offsets)) and all(offset % BLOCK == 0 and offset < size for offset in offsets)
    with open(out, "wb") as disk:
        disk.truncate(size)
        for block in config["Blocks"]:
            name = block["BlockChecksum"]
            data = unpack[method](open(f"{dir}/blocks/{name[:2]}/{name[2:4]}/{name}.blk", "rb").read())
            assert checksum(data) == name and len(data) == BLOCK, name
            disk.seek(block["Offset"])
            disk.write(data)


if sys.argv[1] == "write":
    for method in ("lz4", "gzip", "none"):
        write_volume(sys.argv[2], f"pvc-{method}", method)
    # From before one could choose.
    write_volume(sys.argv[2], "pvc-old", "gzip", is_old=True)
    write_image(sys.argv[2])
    write_harvester(sys.argv[2])
else:
    read(*sys.argv[2:])
