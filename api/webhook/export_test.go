package webhook

// RegisterWithin is Register with another bound of one webhook.
var RegisterWithin = register
