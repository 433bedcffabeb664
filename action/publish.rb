# frozen_string_literal: true

# publish.rb FILE PULL_REQUEST: writes what compare.rb wrote, if it did, to GitHub, with GH_TOKEN. In a process, and a
# step, of its own: an application can read the environment of the processes above it.

require_relative "publication"

file, pull_request = ARGV
exit unless File.file?(file)

text = File.read(file)
File.delete(file) # the next use of the action in this job may fail before it writes one
Memscope::Publication.new((pull_request unless pull_request.to_s.empty?), ENV.fetch("GH_TOKEN", nil)).write(text)
