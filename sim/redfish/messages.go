package redfishsim

import "net/http"

// obj is a JSON object.
type obj = map[string]any

// reply is an answer before faults have their say.
type reply struct {
	status int
	header map[string]string
	body   any    // marshalled to JSON; nil for none
	raw    []byte // sent as it is when body is nil
	ctype  string
}

// message is one entry of @Message.ExtendedInfo.
func (s *Server) message(id, text string, args ...string) obj {
	if args == nil {
		args = []string{}
	}
	sev := "Critical"
	if id == "Success" {
		sev = "OK"
	}
	return obj{
		"@odata.type": "#Message.v1_1_1.Message", "MessageId": s.messageID(id), "Message": text,
		"MessageArgs": args, "Severity": sev, "MessageSeverity": sev, "Resolution": "None",
	}
}

func (s *Server) messageID(id string) string {
	if s.p.Name == "HPE" && id == "UnableToModifyDuringSystemPOST" {
		return "iLO.2.27." + id
	}
	return s.p.Registry + "." + id
}

// fail is a Redfish error answer.
func (s *Server) fail(status int, id, text string, args ...string) reply {
	m := s.message(id, text, args...)
	return reply{status: status, body: obj{"error": obj{
		"code": m["MessageId"], "message": text, "@Message.ExtendedInfo": []any{m},
	}}}
}

func (s *Server) notFound(path string) reply {
	return s.fail(http.StatusNotFound, "ResourceMissingAtURI", "The resource at the URI "+path+" was not found.", path)
}

func (s *Server) notAllowed() reply {
	return s.fail(http.StatusMethodNotAllowed, "OperationNotAllowed", "The HTTP method is not allowed on this resource.")
}

func (s *Server) malformed() reply {
	return s.fail(http.StatusBadRequest, "MalformedJSON", "The request body could not be parsed as a JSON object.")
}

// patched is the answer to a good PATCH in the vendor's form.
func (s *Server) patched(n *node) reply {
	switch s.p.Answer {
	case AnswerResource:
		o := n.get()
		return reply{status: http.StatusOK, body: o, header: map[string]string{"ETag": s.etag(nil, o)}}
	case AnswerMessage:
		m := s.message("Success", "The request completed successfully.")
		return reply{status: http.StatusOK, body: obj{"@Message.ExtendedInfo": []any{m}}}
	case AnswerEmpty:
	}
	return reply{status: http.StatusNoContent}
}

// done is the answer to a good action.
func (s *Server) done() reply {
	if s.p.Answer == AnswerMessage && s.p.Name == "HPE" {
		return s.fail(http.StatusOK, "Success", "The request completed successfully.")
	}
	return reply{status: http.StatusNoContent}
}
