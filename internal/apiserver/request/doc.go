// Package request reads what an HTTP request to the API says by its path,
// method and headers: the resource it is about, and the form of answer that its
// client accepts. It knows neither which resources exist nor who is asking.
package request
