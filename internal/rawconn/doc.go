// Package rawconn makes connections of HTTP requests: one end asks for a protocol by the header
// Upgrade, the other one takes the connection over, and from then on it is for the two to say what
// goes through it. Who may ask has been found out as for any other request. What is spoken
// afterwards is for who calls.
package rawconn
