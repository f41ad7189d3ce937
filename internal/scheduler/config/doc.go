// Package config reads the scheduler's configuration file: a
// KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1, or of v1alpha2
// as far as its fields still mean something. It fills in upstream's defaults and
// names the field of whatever is wrong, as upstream does.
//
// What lives here: the file's form. What its plugins do with their arguments is
// in package plugins.
package config
