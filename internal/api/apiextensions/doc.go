// Package apiextensions declares the resource of the API group apiextensions.k8s.io: the
// CustomResourceDefinitions, of which each makes a kind. What a definition says about its
// objects is compiled by package extend; nothing here serves them.
package apiextensions
