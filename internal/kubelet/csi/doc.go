// Package csi has the volumes of CSI drivers on a node: the drivers that are registered here, and
// of each volume what is staged on the node and published to pods. The node's own driver is not among them: its
// volumes are directories, which package volume places.
//
// Start at [Volumes.SetUp] and [Volumes.TearDown]; at [Drivers] for what is registered.
//
//	<root>/pods/<pod uid>/
//	  volumes/kubernetes.io~csi/<name>/
//	    vol_data.json                       which volume it is, of which driver
//	    mount                               where the driver publishes it
//	  volumeDevices/kubernetes.io~csi/<name> -> the device that is published
//
//	<root>/plugins/kubernetes.io/csi/
//	  <driver>/<hash of the handle>/
//	    vol_data.json
//	    globalmount/                        where the driver stages it
//	  volumeDevices/<name>/data/vol_data.json
//	  volumeDevices/staging/<name>/         where a device is staged,
//	  volumeDevices/publish/<name>/<pod>    and published
//
// These are upstream's directories, which programs look into. Drivers are told paths as they see them in their
// containers, where the root has another name as a rule.
//
// Invariants, cited by number in the code:
//
//	S1 A record lies on disk before its driver is asked for anything, and until the driver has undone it: a new process undoes what a killed one has begun.
//	S2 A volume is unstaged after it has been unpublished from the last pod, and is in use until then.
//	S3 What is done to one volume is done one after another, and holds up no other volume.
//	S4 Nothing that a driver calls itself, or a volume, leads out of the directory that is meant for it.
package csi
