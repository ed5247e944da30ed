#!/bin/bash
# dracut module: what a virtual machine's first boot needs beside dracut's own modules

check() {
    return 255
}

depends() {
    echo ostree ignition systemd-networkd
}

install() {
    inst_multiple mkdir mount rmdir touch umount
    inst_simple "$moddir/setfiles" /usr/sbin/setfiles
    inst_simple "$moddir/selinux" /usr/lib/dayone/selinux/config
    inst_simple "$moddir/file_contexts" /usr/lib/dayone/selinux/targeted/contexts/files/file_contexts
    inst_simple "$moddir/prepare-root.conf" "$systemdsystemunitdir/ostree-prepare-root.service.d/10-dayone.conf"
    inst_simple "$moddir/ignition-files.conf" "$systemdsystemunitdir/ignition-files.service.d/10-dayone.conf"
}
