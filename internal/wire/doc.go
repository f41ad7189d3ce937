// Package wire turns objects into the bytes that clients and the store see, and
// back: JSON, YAML and Kubernetes' protobuf envelope, whole objects, lists and
// watch frames.
//
// JSON is written by [AppendJSON] from a plan that is made once a type, of the
// fields that package layout finds; its output equals encoding/json's byte for byte (a test compares them for every
// kind), at several times the speed. It is read by plan as well ([DecodeJSON]), where
// there is nothing unusual about a document; the rest is the library's. Everything here is pure: bytes in, bytes
// out. What is sent to whom belongs to package apiserver.
package wire
