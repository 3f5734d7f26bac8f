/** Cloud images whose addresses always lead to the newest build, for those who have none at hand. The server fetches them when asked. */
export const wellKnown = [
  { title: 'Debian 13', url: 'https://cloud.debian.org/images/cloud/trixie/latest/debian-13-genericcloud-amd64.qcow2' },
  { title: 'Ubuntu 24.04', url: 'https://cloud-images.ubuntu.com/releases/24.04/release/ubuntu-24.04-server-cloudimg-amd64.img' },
  { title: 'Rocky Linux 9', url: 'https://dl.rockylinux.org/pub/rocky/9/images/x86_64/Rocky-9-GenericCloud-Base.latest.x86_64.qcow2' },
];
