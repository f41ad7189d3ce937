// Package served describes resources as they are served: [Resource] is one at one
// group-version, with the conversions to and from what is stored and what its
// encodings begin with. What a request asks of a resource is not known here.
package served
