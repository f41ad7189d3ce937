// Package csi says which volumes CSI drivers see to, and what they are to them: those of
// source csi, and those of kinds that were built in once and that a driver stands in for now. To
// the controller that attaches, the scheduler and the node agent both are the same.
//
// What the kinds of old are to their drivers is upstream's own translation
// (k8s.io/csi-translation-lib), so that disks keep the names that their drivers know them by.
package csi
