# Becomes the init of a machine of its own, in namespaces that are new: see systemd.py.
#   systemd-init.sh MANAGER ROOT USER PYTHON HELD…
set -euo pipefail
manager=$1 root=$2 user=$3 python=$4
shift 4

empty() { mount -t tmpfs -o mode=755 tmpfs "$1"; }

mount --make-rprivate /
mount -t proc proc /proc
mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys # that is everybody's, and so is /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -o remount,bind,ro /sys
mount --bind /dev/null /dev/console # what an init says there is for its own machine

# What is needed of the other machine is held in /run while empty folders are put over the rest. There it can be
# used by services too, which have a /tmp of their own: what is there may well be below this one.
empty /run
cp -r "$root" /run/files
mkdir /run/python
mount --rbind "$python" /run/python
held=0
for path in "$@"; do
    mkdir -p "/run/held/$((++held))"
    mount --rbind "$path" "/run/held/$held"
done
for folder in /srv /tmp /var/tmp /var/lib /etc/systemd; do empty "$folder"; done
chmod 1777 /tmp /var/tmp

# A Python is used in its own place. Where a user may not look, as into /root, becomes a folder with nothing else.
closed() {
    local folder=$1 found=
    while [[ $folder != / ]]; do
        [[ ! -e $folder || $(stat -c %A "$folder") == *x ]] || found=$folder
        folder=$(dirname "$folder")
    done
    echo "$found"
}
folder=$(closed "$python")
[[ -z $folder ]] || empty "$folder"
mkdir -p "$python"
mount --rbind /run/python "$python"

cp -r /run/files/. /
for file in passwd group; do cp "/etc/$file" "/run/$file"; done
echo "$user:x:64321:64321::/srv/$user:/usr/sbin/nologin" >>/run/passwd
echo "$user:x:64321:" >>/run/group
for file in passwd group; do mount --bind "/run/$file" "/etc/$file"; done
mount -o remount,bind,ro / # nothing of it is for this machine to change

exec env -i container=postroom-test PATH="/srv/$user/.venv/bin:$PATH" SYSTEMD_UNIT_PATH=/etc/systemd/system \
    "$manager" --system --unit=multi-user.target --log-target=null --show-status=no
