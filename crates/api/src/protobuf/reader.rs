//! The wire format: tags, varints and length-delimited fields. Never allocates, never reads past the end.

use super::ProtobufError;

/// One field's value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32,
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    pub(super) fn bytes(self, field: &str) -> Result<&'a [u8], ProtobufError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            other => Err(other.wrong(field)),
        }
    }

    pub(super) fn varint(self, field: &str) -> Result<u64, ProtobufError> {
        match self {
            Self::Varint(value) => Ok(value),
            other => Err(other.wrong(field)),
        }
    }

    pub(super) fn fixed64(self, field: &str) -> Result<u64, ProtobufError> {
        match self {
            Self::Fixed64(value) => Ok(value),
            other => Err(other.wrong(field)),
        }
    }

    fn wrong(self, field: &str) -> ProtobufError {
        let wire = match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Fixed32 => 5,
        };
        ProtobufError::WrongWireType { field: field.to_owned(), wire }
    }
}

pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next field; `None` at the end.
    pub(super) fn field(&mut self) -> Result<Option<(u32, Wire<'a>)>, ProtobufError> {
        if self.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| ProtobufError::Overflow)?;
        if number == 0 {
            return Err(ProtobufError::IllegalTag);
        }
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(self.fixed64()?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| ProtobufError::Overflow)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Wire::Fixed32
            }
            // 3 and 4 delimit groups, which no Kubernetes message has.
            other => return Err(ProtobufError::IllegalWireType(u8::try_from(other).unwrap_or(u8::MAX))),
        };
        Ok(Some((number, wire)))
    }

    pub(super) fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(ProtobufError::Truncated)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ProtobufError::Overflow)
    }

    pub(super) fn fixed64(&mut self) -> Result<u64, ProtobufError> {
        let bytes = self.take(8)?.first_chunk::<8>().ok_or(ProtobufError::Truncated)?;
        Ok(u64::from_le_bytes(*bytes))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(ProtobufError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}
