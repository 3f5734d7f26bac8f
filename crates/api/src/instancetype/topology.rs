//! How the processors of an instancetype are laid out.

use super::conflict::Conflict;
use super::{VirtualMachineInstancetypeSpec, VirtualMachinePreferenceSpec};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topology {
    Sockets,
    Cores,
    Threads,
    Spread,
    Any,
}

impl Topology {
    /// By either of its two names.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "sockets" | "preferSockets" => Self::Sockets,
            "cores" | "preferCores" => Self::Cores,
            "threads" | "preferThreads" => Self::Threads,
            "spread" | "preferSpread" => Self::Spread,
            "any" | "preferAny" => Self::Any,
            _ => return None,
        })
    }

    pub(super) fn preferred(preference: Option<&VirtualMachinePreferenceSpec>) -> Self {
        let name = preference.and_then(|preference| preference.cpu.as_ref()?.preferred_cpu_topology.as_deref());
        name.and_then(Self::named).unwrap_or(Self::Sockets)
    }
}

/// What [`Topology::Spread`] spreads over; ratios are never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spread {
    SocketsCores { ratio: u32 },
    CoresThreads { ratio: u32 },
    SocketsCoresThreads { ratio: u32 },
}

const THREADS_PER_CORE: u32 = 2;

impl Spread {
    pub(super) fn of(preference: Option<&VirtualMachinePreferenceSpec>) -> Self {
        let options = preference.and_then(|preference| preference.cpu.as_ref()?.spread_options.as_ref());
        let general = preference.and_then(|preference| preference.prefer_spread_socket_to_core_ratio);
        let ratio =
            options.and_then(|options| options.ratio).or(general.filter(|ratio| *ratio != 0)).unwrap_or(2).max(1);
        match options.and_then(|options| options.across.as_deref()) {
            Some("CoresThreads") => Self::CoresThreads { ratio },
            Some("SocketsCoresThreads") => Self::SocketsCoresThreads { ratio },
            _ => Self::SocketsCores { ratio },
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::SocketsCores { .. } => "SocketsCores",
            Self::CoresThreads { .. } => "CoresThreads",
            Self::SocketsCoresThreads { .. } => "SocketsCoresThreads",
        }
    }
}

/// The processors must be divisible as the preference spreads them.
pub(super) fn check_spread(
    instancetype: Option<&VirtualMachineInstancetypeSpec>,
    preference: Option<&VirtualMachinePreferenceSpec>,
) -> Option<Conflict> {
    let count = instancetype?.cpu.guest;
    if Topology::preferred(preference) != Topology::Spread {
        return None;
    }
    let provided = format!("{count} vCPUs provided by the instance type are not divisible by the");
    let ratios = "Spec.PreferSpreadSocketToCoreRatio or Spec.CPU.PreferSpreadOptions.Ratio of";
    let message = match Spread::of(preference) {
        Spread::SocketsCores { ratio } if count % ratio > 0 => {
            format!("{provided} {ratios} {ratio} provided by the preference")
        }
        Spread::CoresThreads { ratio } if count % ratio > 0 => {
            format!("{provided} number of threads per core {ratio}")
        }
        Spread::SocketsCoresThreads { ratio }
            if !count.is_multiple_of(THREADS_PER_CORE) || !(count / THREADS_PER_CORE).is_multiple_of(ratio) =>
        {
            format!("{provided} number of threads per core {THREADS_PER_CORE} and {ratios} {ratio}")
        }
        _ => return None,
    };
    Some(Conflict { field: "instancetype.spec.cpu.guest".to_owned(), message: Some(message) })
}
