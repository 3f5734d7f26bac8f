//! Board, processors, memory, firmware and clock.

use serde_json::json;

use super::{Arguments, disk, path_text, word};
use crate::accel::Accel;
use crate::spec::{Aio, Chipset, ClockBase, Cpu, CpuModel, Firmware, HyperV, Machine, MemoryBacking, SpecError};

pub(super) fn add(args: &mut Arguments, machine: &Machine, accel: Accel) -> Result<(), SpecError> {
    board(args, machine)?;
    match accel {
        Accel::Kvm => args.words(&["-accel", "kvm"]),
        Accel::Tcg { cache_mib: None } => args.words(&["-accel", "tcg"]),
        Accel::Tcg { cache_mib: Some(mib) } => args.words(&["-accel", &format!("tcg,tb-size={mib}")]),
    }
    processors(args, machine, accel)?;
    memory(args, machine)?;
    firmware(args, machine)?;
    kernel(args, machine)?;
    args.words(&["-uuid", &machine.uuid.to_string()]);
    smbios(args, machine)?;
    clock(args, machine, accel)?;
    args.words(&["-boot", "strict=on"]);
    Ok(())
}

fn board(args: &mut Arguments, machine: &Machine) -> Result<(), SpecError> {
    let (name, version) = match &machine.chipset {
        Chipset::Q35 { version } => ("q35", version),
        Chipset::I440fx { version } => ("i440fx", version),
    };
    let kind = match version {
        Some(version) => format!("pc-{name}-{}", word("machine version", version)?),
        None if name == "q35" => "q35".to_owned(),
        None => "pc".to_owned(),
    };
    let mut pairs = vec![
        ("type", kind.as_str()),
        ("usb", "off"),
        ("vmport", "off"),
        ("dump-guest-core", "off"),
        ("hpet", if machine.clock.has_hpet { "on" } else { "off" }),
        ("memory-backend", "ram"),
    ];
    if !machine.has_acpi {
        pairs.push(("acpi", "off"));
    }
    let has_secure_boot = matches!(machine.firmware, Firmware::Uefi { has_secure_boot: true, .. });
    if matches!(machine.firmware, Firmware::Uefi { .. }) {
        pairs.extend([("pflash0", "pflash0"), ("pflash1", "pflash1")]);
    }
    match (has_secure_boot, machine.has_smm) {
        // The variables are written in a mode that the guest's kernel cannot enter.
        (true, true) => pairs.push(("smm", "on")),
        (true, false) => return Err(SpecError::Impossible("Secure Boot without system management mode".into())),
        (false, true) => {}
        (false, false) => pairs.push(("smm", "off")),
    }
    args.option("-machine", &pairs)
}

fn processors(args: &mut Arguments, machine: &Machine, accel: Accel) -> Result<(), SpecError> {
    let cpu = &machine.cpu;
    let mut words = vec![match (&cpu.model, accel) {
        (CpuModel::Named(model), _) => word("CPU model", model)?.to_owned(),
        (CpuModel::Host, Accel::Kvm) => "host".to_owned(),
        (CpuModel::Host, Accel::Tcg { .. }) => "max".to_owned(),
    }];
    for (feature, is_on) in &cpu.features {
        let state = if *is_on { "on" } else { "off" };
        words.push(format!("{}={state}", word("CPU feature", feature)?));
    }
    if accel == Accel::Kvm {
        hyperv(&mut words, &machine.hyperv)?;
    }
    args.list.extend(["-cpu".to_owned(), words.join(","), "-smp".to_owned(), topology(cpu)?]);
    Ok(())
}

fn topology(cpu: &Cpu) -> Result<String, SpecError> {
    let Cpu { sockets, cores, threads, max_sockets, .. } = *cpu;
    if [sockets, cores, threads].contains(&0) || max_sockets < sockets {
        return Err(SpecError::Impossible(format!(
            "CPU topology of {sockets} sockets (at most {max_sockets}), {cores} cores and {threads} threads"
        )));
    }
    let per_socket = u64::from(cores) * u64::from(threads);
    let (count, most) = (per_socket * u64::from(sockets), per_socket * u64::from(max_sockets));
    Ok(format!("cpus={count},maxcpus={most},sockets={max_sockets},cores={cores},threads={threads}"))
}

fn hyperv(words: &mut Vec<String>, flags: &HyperV) -> Result<(), SpecError> {
    let switches = [
        ("hv-relaxed", flags.relaxed),
        ("hv-vapic", flags.vapic),
        ("hv-vpindex", flags.vpindex),
        ("hv-runtime", flags.runtime),
        ("hv-synic", flags.synic),
        ("hv-stimer", flags.stimer),
        ("hv-stimer-direct", flags.stimer_direct),
        ("hv-reset", flags.reset),
        ("hv-frequencies", flags.frequencies),
        ("hv-reenlightenment", flags.reenlightenment),
        ("hv-tlbflush", flags.tlbflush),
        ("hv-tlbflush-direct", flags.tlbflush_direct),
        ("hv-tlbflush-ext", flags.tlbflush_extended),
        ("hv-ipi", flags.ipi),
        ("hv-evmcs", flags.evmcs),
        ("hv-time", flags.time),
        ("hv-passthrough", flags.passthrough),
    ];
    words.extend(switches.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| format!("{name}=on")));
    if let Some(retries) = flags.spinlock_retries {
        words.push(format!("hv-spinlocks={retries:#x}"));
    }
    if let Some(vendor) = &flags.vendor_id {
        words.push(format!("hv-vendor-id={}", word("Hyper-V vendor id", vendor)?));
    }
    Ok(())
}

fn memory(args: &mut Arguments, machine: &Machine) -> Result<(), SpecError> {
    const UNIT: u64 = 4096;
    let memory = &machine.memory;
    if memory.bytes == 0 || !memory.bytes.is_multiple_of(UNIT) {
        return Err(SpecError::Impossible(format!("{} bytes of memory: not a number of whole pages", memory.bytes)));
    }
    let mut size = format!("size={}k", memory.bytes / 1024);
    if let Some(hotplug) = memory.hotplug {
        if hotplug.max_bytes < memory.bytes || !hotplug.max_bytes.is_multiple_of(UNIT) || hotplug.slots == 0 {
            return Err(SpecError::Impossible(format!(
                "hot-plug of memory up to {} bytes in {} slots",
                hotplug.max_bytes, hotplug.slots
            )));
        }
        size = format!("{size},slots={},maxmem={}k", hotplug.slots, hotplug.max_bytes / 1024);
    }
    args.list.extend(["-m".to_owned(), size]);
    let mut object = match memory.backing {
        MemoryBacking::Anonymous => json!({ "qom-type": "memory-backend-ram" }),
        MemoryBacking::Shared => json!({ "qom-type": "memory-backend-memfd", "share": true }),
        MemoryBacking::Hugepages { page_bytes } => {
            json!({ "qom-type": "memory-backend-memfd", "hugetlb": true, "hugetlbsize": page_bytes, "prealloc": true })
        }
    };
    object["id"] = json!("ram");
    object["size"] = json!(memory.bytes);
    args.json("-object", &object);
    Ok(())
}

fn firmware(args: &mut Arguments, machine: &Machine) -> Result<(), SpecError> {
    let Firmware::Uefi { code, vars, has_secure_boot } = &machine.firmware else { return Ok(()) };
    let code = json!({ "driver": "file", "filename": path_text("firmware", code)? });
    for (name, file, is_read_only) in [("pflash0", code, true), ("pflash1", disk::protocol(vars, Aio::Threads)?, false)]
    {
        args.json("-blockdev", &json!({ "driver": "raw", "node-name": name, "read-only": is_read_only, "file": file }));
    }
    if *has_secure_boot {
        if !matches!(machine.chipset, Chipset::Q35 { .. }) {
            return Err(SpecError::Impossible("Secure Boot on a chipset other than q35".into()));
        }
        args.words(&["-global", "driver=cfi.pflash01,property=secure,value=on"]);
        args.words(&["-global", "ICH9-LPC.disable_s3=1"]);
    }
    Ok(())
}

fn smbios(args: &mut Arguments, machine: &Machine) -> Result<(), SpecError> {
    let smbios = &machine.smbios;
    let fields = [
        ("manufacturer", &smbios.manufacturer),
        ("product", &smbios.product),
        ("version", &smbios.version),
        ("serial", &smbios.serial),
        ("sku", &smbios.sku),
        ("family", &smbios.family),
    ];
    let mut pairs = vec![("type", "1")];
    pairs.extend(fields.iter().filter_map(|(key, value)| value.as_deref().map(|value| (*key, value))));
    if pairs.len() > 1 {
        args.option("-smbios", &pairs)?;
    }
    let chassis = &smbios.chassis;
    let fields = [
        ("manufacturer", &chassis.manufacturer),
        ("version", &chassis.version),
        ("serial", &chassis.serial),
        ("asset", &chassis.asset),
        ("sku", &chassis.sku),
    ];
    let mut pairs = vec![("type", "3")];
    pairs.extend(fields.iter().filter_map(|(key, value)| value.as_deref().map(|value| (*key, value))));
    if pairs.len() == 1 { Ok(()) } else { args.option("-smbios", &pairs) }
}

fn kernel(args: &mut Arguments, machine: &Machine) -> Result<(), SpecError> {
    let Some(kernel) = &machine.kernel else { return Ok(()) };
    args.words(&["-kernel", path_text("kernel", &kernel.image)?]);
    if let Some(initrd) = &kernel.initrd {
        args.words(&["-initrd", path_text("initial RAM disk", initrd)?]);
    }
    if kernel.command_line.contains('\0') {
        return Err(SpecError::Text { what: "kernel arguments", value: kernel.command_line.clone() });
    }
    args.words(&["-append", &kernel.command_line]);
    Ok(())
}

fn clock(args: &mut Arguments, machine: &Machine, accel: Accel) -> Result<(), SpecError> {
    let base = match &machine.clock.base {
        ClockBase::Utc => "utc",
        ClockBase::LocalTime => "localtime",
        ClockBase::At(date) => date,
    };
    let drift = if machine.clock.catches_up { "slew" } else { "none" };
    let clock = if machine.clock.follows_guest { "vm" } else { "host" };
    args.option("-rtc", &[("base", base), ("clock", clock), ("driftfix", drift)])?;
    if accel == Accel::Kvm {
        // Ticks that a guest missed come late rather than in a burst.
        args.words(&["-global", "kvm-pit.lost_tick_policy=delay"]);
    }
    Ok(())
}
