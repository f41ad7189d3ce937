// Package san brings disks of storage networks to the machine, and takes them away again: those of iSCSI by the machine's own
// iscsiadm, those of fibre channels as the kernel has found them. Start at [Machine.Attach].
//
// It ends at the device. What is mounted where, for which pods, and what of that is written down is for package volume.
package san
