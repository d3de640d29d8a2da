"""What people do at a terminal besides serving: chat, look after models, find out what is wrong."""
