// Package priority is the plugin Priority: the priority of a pod by its class,
// and one default class at most.
package priority
