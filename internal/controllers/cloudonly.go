package controllers

import (
	"slices"

	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/controllers/cloud"
)

// OfCloud are those of the controllers that a cloud is needed for, and that are turned on: for
// a process that runs no others. The cloud must be open.
func OfCloud(o Options) []*controller.Controller {
	var all []*controller.Controller
	for _, c := range All(o) {
		if cloud.Loop(c) {
			all = append(all, c)
		}
	}
	return o.Running(all)
}

// CloudNames are the names of those controllers, for people.
func CloudNames() (names []string) {
	for _, c := range every() {
		if cloud.Loop(c) {
			names = append(names, switchNameOf(c).name)
		}
	}
	slices.Sort(names)
	return names
}

// CloudSyncs are those of the flags that are of such a controller.
func CloudSyncs() []Sync {
	return slices.DeleteFunc(DefaultSyncs(), func(s Sync) bool { return !cloud.Loop(&controller.Controller{Name: s.controller}) })
}
