# frozen_string_literal: true

require "rbconfig"
require_relative "../setup/facade"

module Memscope
  # Starts another program: `memscope exec`, `memscope report -- COMMAND` and others prepare the environment, and become
  # the program; what is left to do, such as the proof of its allocator, is done inside. No memscope process remains.
  #
  # @api private
  module Launch
    # Why a program cannot start as requested; the message is the reason.
    class Refusal < StandardError; end

    ELF = "\x7FELF".b.freeze
    private_constant :ELF

    # @param name [String] of a command
    # @return [String, nil] its path, if it is an executable other than the Ruby that runs memscope, and so runs nothing
    #   of memscope itself; nil also for a script, whose interpreter may be any, or a file that is not found
    def self.stranger(name)
      directories = name.include?("/") ? [""] : ENV.fetch("PATH", "").split(":")
      path = directories.map { |directory| directory.empty? ? name : File.join(directory, name) }
                        .find { |one| File.file?(one) && File.executable?(one) }
      path if path && File.binread(path, ELF.bytesize) == ELF && !File.identical?(path, RbConfig.ruby)
    rescue SystemCallError
      nil # it may be executed, and not read
    end
  end
end

require_relative "launch/environment"
require_relative "launch/handoff"
