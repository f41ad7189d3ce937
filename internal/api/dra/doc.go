// Package dra declares the resources of the API group resource.k8s.io, those of dynamic
// resource allocation: DeviceClasses, DeviceTaintRules, ResourceClaims,
// ResourceClaimTemplates and ResourceSlices. It is not called after its group because
// package resource is what a declaration is made of.
//
// Fields of features that are alpha in this version are taken away from what is written,
// and so need no check: derived attributes, attributes with lists of values, groups of
// compatible devices, mappings to resources of nodes, names of partitions and operations
// of nodes to skip (drop.go). Expressions are compiled by internal/cel/device. Who may have
// administrative access, and who may write which part of a status, is for admission.
package dra
