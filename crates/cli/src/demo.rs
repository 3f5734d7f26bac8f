//! `croft demo`: from nothing to a prompt in a virtual machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;

use crate::client::{Client, ClientArgs, IMAGES, MACHINES};
use crate::image::{self, Found};
use crate::vm::{Creation, Login, attach, running};
use crate::{Failure, print};

const NAME: &str = "demo";

#[derive(Debug, Args)]
#[command(after_help = "What it makes is deleted by \"croft vm delete demo\" and \"croft image delete demo\".")]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// The image to start: a file, or a URL [default: the small guest that "make run" builds]
    #[arg(long, value_name = "FILE|URL")]
    image: Option<String>,
    /// Its memory
    #[arg(long, default_value = "256Mi", value_name = "SIZE")]
    memory: String,
    /// Only make it and say how to get in; do not open the console
    #[arg(long)]
    no_console: bool,
}

pub(crate) async fn run(args: DemoArgs) -> Result<(), Failure> {
    let client = args.client.connect().await?;
    if client.find(&MACHINES.one(&client.namespace, NAME)?).await?.is_some() {
        eprintln!("The machine {NAME:?} is there already; its password was shown when it was made.");
    } else {
        let image = ensure_image(&client, args.image.as_deref()).await?;
        let password = make(&client, &image, &args.memory).await?;
        // Cloud images bring a user of their own, named after the system most often.
        let user = if args.image.is_some() { "the image's own, for example debian" } else { "root" };
        print(&format!("\n  machine   {NAME}\n  user      {user}\n  password  {password}\n\n"))?;
    }
    running(&client, NAME).await?;
    if args.no_console {
        return print(&format!("{NAME} is running. Get in with: croft vm console {NAME}\n"));
    }
    attach(&client, NAME).await
}

async fn ensure_image(client: &Client, asked: Option<&str>) -> anyhow::Result<Found> {
    if client.find(&IMAGES.one(&client.namespace, NAME)?).await?.is_some() {
        return image::find_ready(client, NAME).await;
    }
    match asked {
        Some(url) if url.starts_with("http://") || url.starts_with("https://") => image::fetch(client, NAME, url).await,
        Some(file) => image::upload(client, NAME, Path::new(file)).await,
        None => image::upload(client, NAME, &built_image()?).await,
    }
}

/// The small guest, where a build or a package leaves it.
fn built_image() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let beside = own.parent().and_then(Path::parent).map(|target| target.join("guest/tiny.qcow2"));
    let places =
        [std::env::var_os("CROFT_DEMO_IMAGE").map(PathBuf::from), beside, Some("/usr/share/croft/demo.qcow2".into())];
    let found = places.into_iter().flatten().find(|path| path.is_file());
    let Some(found) = found else {
        bail!(
            "the small guest is not built: run \"make guest\", or give an image with --image FILE or --image URL \
             (any cloud image will do)"
        )
    };
    Ok(found)
}

async fn make(client: &Client, image: &Found, memory: &str) -> anyhow::Result<String> {
    let password = croft_pki::password::generate().context("cannot make up a password")?;
    let password = password.reveal().to_owned();
    let login = Login { password: Some(password.clone()), ..Login::default() };
    let mut creation = Creation::new(NAME, 1, memory);
    creation.user_data = login.user_data()?;
    creation.add_image_disk(image, Some("1Gi"))?;
    creation.submit(client).await?;
    Ok(password)
}
