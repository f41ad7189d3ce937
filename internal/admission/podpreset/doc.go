// Package podpreset is the plugin PodPreset: what the PodPresets of a namespace add
// to its pods as they are made. It is off unless asked for, and does nothing while the
// API group settings.k8s.io is not served.
//
// merge.go is the pure part: it adds all that the presets have, or nothing.
package podpreset
