// Package abac decides by a file of policies, one JSON object a line: attribute-based access
// control, as clusters had it before roles. The file is read once, when the server starts.
package abac
