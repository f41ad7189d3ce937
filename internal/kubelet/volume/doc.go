// Package volume makes the volumes of pods: the directories and files that
// containers mount, their live updates, and their removal without leftovers.
// Start at [Manager.Prepare].
//
//	<root>/<pod uid>/
//	  volumes/kubernetes.io~<kind>/<name>/   a volume
//	    ..data -> ..2006_01_02_15_04_05.N    the current content of a written volume
//	    key -> ..data/key
//	  volume-subpaths/<name>/<container>/<n> a part of a volume, mounted safely
//	  volumes/kubernetes.io~persistent-volume/<name> -> where it lies
//	  etc-hosts, containers/<name>/<n>       other files of the pod
//
//	<root>/../volumes/<handle>/              a persistent volume of the node's own
//
// Invariants, cited by number in the code:
//
//	V1 A reader of a written volume sees the content of one state of its sources, whole, and no file ever lacks content.
//	V2 Nothing is deleted below a directory on which something is still mounted.
//	V3 What is on disk tells all that has to be undone: a new process can clean up after a killed one.
//	V4 A path given by a pod never leads out of its volume, whatever links lie there.
package volume
