// Package openapi describes the served resources as OpenAPI documents, version
// 2 and 3, made from the Go types themselves: their JSON tags give the fields, their
// embedded documentation the descriptions.
//
// Documents are made when somebody asks for them. Start at service.go; schema.go
// turns a Go type into a schema, paths.go a resource into paths, subpaths.go its
// subresources; roots.go has the paths that are no resource's.
package openapi
