package webhook

// OfSource is how many bodies of one address are read at the same time.
const OfSource = ofSource

// RegisterWithin is Register with another bound of one webhook.
var RegisterWithin = register
