SwaggerUIBundle({
  url: '/openapi.json', dom_id: '#reference', deepLinking: true, docExpansion: 'none', validatorUrl: null,
  tryItOutEnabled: true, persistAuthorization: false, withCredentials: true,
  presets: [SwaggerUIBundle.presets.apis],
});
