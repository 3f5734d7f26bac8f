//! A VNC client that knows just enough to look at the screen once.

use anyhow::{Context, Result, bail, ensure};

use crate::WebSocket;

/// A picture of the screen: 32 bits a pixel.
#[derive(Debug)]
pub struct Screen {
    pub width: u16,
    pub height: u16,
    pub pixels: Vec<u8>,
}

impl Screen {
    /// How many different colours are on it: a screen that shows something has more than one.
    pub fn colours(&self) -> usize {
        let colours: std::collections::BTreeSet<&[u8]> = self.pixels.chunks(4).map(|pixel| &pixel[..3]).collect();
        colours.len()
    }
}

/// Shakes hands (RFC 6143), asks for the whole screen in raw encoding, and reads it.
pub async fn look(stream: &mut WebSocket) -> Result<Screen> {
    let version = stream.receive_exactly(12).await.context("the version")?;
    ensure!(version.starts_with(b"RFB 003.00"), "not a VNC server: {version:?}");
    stream.send(b"RFB 003.008\n").await?;
    let count = stream.receive_exactly(1).await.context("the number of security types")?[0];
    let types = stream.receive_exactly(usize::from(count)).await?;
    ensure!(types.contains(&1), "the server wants a password: security types {types:?}");
    stream.send(&[1]).await?;
    let result = stream.receive_exactly(4).await.context("the security result")?;
    ensure!(result[..] == [0; 4], "refused: {result:?}");
    stream.send(&[1]).await?;
    let init = stream.receive_exactly(24).await.context("the screen's description")?;
    let number = |at: usize| u16::from_be_bytes([init[at], init[at + 1]]);
    let (width, height) = (number(0), number(2));
    let name = u32::from_be_bytes([init[20], init[21], init[22], init[23]]);
    stream.receive_exactly(usize::try_from(name)?).await?;
    // 32 bits a pixel, 24 of them colour, little endian, eight bits each.
    stream.send(&[0, 0, 0, 0, 32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0]).await?;
    // One encoding: raw.
    stream.send(&[2, 0, 0, 1, 0, 0, 0, 0]).await?;
    let [w, h] = [width.to_be_bytes(), height.to_be_bytes()];
    stream.send(&[3, 0, 0, 0, 0, 0, w[0], w[1], h[0], h[1]]).await?;
    read_update(stream, width, height).await
}

async fn read_update(stream: &mut WebSocket, width: u16, height: u16) -> Result<Screen> {
    let size = usize::from(width) * usize::from(height) * 4;
    let mut pixels = vec![0; size];
    let head = stream.receive_exactly(4).await.context("the update")?;
    ensure!(head[0] == 0, "another message than an update: {}", head[0]);
    for _ in 0..u16::from_be_bytes([head[2], head[3]]) {
        let rectangle = stream.receive_exactly(12).await?;
        let number = |at: usize| usize::from(u16::from_be_bytes([rectangle[at], rectangle[at + 1]]));
        let (x, y, w, h) = (number(0), number(2), number(4), number(6));
        if rectangle[8..] != [0; 4] {
            bail!("an encoding that was not asked for: {:?}", &rectangle[8..]);
        }
        let rows = stream.receive_exactly(w * h * 4).await?;
        for (row, line) in rows.chunks(w * 4).enumerate() {
            let start = ((y + row) * usize::from(width) + x) * 4;
            pixels.get_mut(start..start + line.len()).context("a rectangle beyond the screen")?.copy_from_slice(line);
        }
    }
    Ok(Screen { width, height, pixels })
}
