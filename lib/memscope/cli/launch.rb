# frozen_string_literal: true

require "rbconfig"
require_relative "../setup/facade"

module Memscope
  # Starts another program: `memscope exec`, `memscope report -- COMMAND` and others prepare the environment, and become
  # the program. The remaining work, such as the proof of its allocator, is done inside. No memscope process remains.
  # @api private
  module Launch
    # A program cannot start as requested, for the reason in the message.
    class Refusal < StandardError; end

    WORDS = Words.beside(__FILE__)
    ELF = "\x7FELF".b.freeze

    # @return [String, nil] its path, if that is an executable other than the Ruby that runs memscope, and so runs
    #   nothing of memscope itself. Also nil for env(1), for a script, whose interpreter may be any, and for a file that
    #   is not found
    def self.stranger(name)
      path = find(name)
      return if path.nil? || File.basename(path) == "env" || File.identical?(path, RbConfig.ruby)

      path if File.binread(path, ELF.bytesize) == ELF
    rescue SystemCallError
      nil # it may be executed, and not read
    end

    # As execvp(3) finds a command.
    def self.find(name)
      directories = name.include?("/") ? ["."] : ENV.fetch("PATH", "").split(":")
      directories.map { |directory| File.absolute_path(name, directory) }
                 .find { |path| File.file?(path) && File.executable?(path) }
    end
    private_class_method :find
  end
end

require_relative "launch/environment"
require_relative "launch/handoff"
