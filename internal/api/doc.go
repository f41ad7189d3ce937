// Package api lists every built-in resource. Each kind is one file in the
// folder of its group: declaration, defaults, validation, columns and legacy
// versions; pure data and functions, no I/O.
//
// To add a kind, copy internal/api/node/runtimeclass.go, change it, and add the
// resource to [All]. An older version of a kind is one entry in its Versions:
// resource.SameWire, if all that differs are defaults and rules (most do:
// rbac/role.go, apps/deployment_legacy.go), or two conversions written out
// (discovery/endpointslice_legacy.go). What a kind does with good and bad objects
// is written down in testdata/cases, one YAML document a case.
package api
