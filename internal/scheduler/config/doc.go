// Package config reads the scheduler's configuration file: a
// KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1, or of v1alpha2
// as far as its fields still mean something. It fills in upstream's defaults and
// names the field of whatever is wrong, as upstream does. What is about a process of its own
// (how it reaches the API, its profiles) is checked, has no effect, and is logged at the start.
// leaderElection is how the scheduler's lease is held where several servers have one store;
// flags (--leader-elect-...) that are not as by default go before it.
//
// What lives here: the file's form. What its plugins do with their arguments is
// in package plugins.
package config
