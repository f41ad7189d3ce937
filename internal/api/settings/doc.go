// Package settings declares the resource of the API group settings.k8s.io:
// PodPresets. The Kubernetes libraries have given the group up, so its wire types are
// here too. What a preset does to pods is the admission plugin
// admission/podpreset.
package settings
